//! The cost of memory accesses.
//!
//! [`measure()`] measures the latency and the bandwidth of a CPU's caches and memory, and
//! [`levels`] finds the caches in these figures. [`Walk`] predicts the cost of a loop over many objects, whose
//! layout comes from [`btf`].

pub mod btf;
mod caches;
mod error;
pub mod levels;
mod measure;
mod ring;
mod sys;
mod walk;

pub use caches::{CacheSize, caches_of};
pub use error::{MemError, WalkError};
pub use measure::{Plan, measure};
pub use walk::Walk;
