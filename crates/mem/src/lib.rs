//! The cost of memory accesses.
//!
//! [`measure()`] measures the latency and the bandwidth of a CPU's caches and memory, and
//! [`levels`] finds the caches in these figures. [`Walk`] predicts the cost of a loop over many
//! objects, whose layout comes from [`btf`], and checks the prediction with synthetic objects.
//! [`objects()`] predicts walks over the objects that the kernel of this machine holds.

#![forbid(unsafe_code)]

pub mod btf;
mod caches;
mod check;
mod error;
pub mod levels;
mod measure;
mod objects;
mod prefetch;
mod ring;
mod walk;

pub use caches::{CacheSize, caches_of};
pub use check::{Chases, Observed};
pub use error::{LayoutError, LayoutProblem, MemError, WalkError};
pub use measure::{Plan, measure};
pub use objects::objects;
pub use walk::Walk;
