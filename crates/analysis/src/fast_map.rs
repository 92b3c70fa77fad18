//! The hash map used by code that runs once per row.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A hash map several times as fast as the standard one. Its seed is random, so nobody can craft a
/// recording whose keys collide.
pub(crate) type FastMap<K, V> = HashMap<K, V, RandomState>;
