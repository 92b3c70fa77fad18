//! The cost of memory accesses.
//!
//! [`measure()`] measures the latency and the bandwidth of a CPU's caches and memory, and [`levels`]
//! finds the caches in these figures.

mod caches;
mod error;
pub mod levels;
mod measure;
mod ring;
mod sys;

pub use caches::{CacheSize, caches_of};
pub use error::MemError;
pub use measure::{Plan, measure};
