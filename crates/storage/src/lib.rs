//! Measures what an fsync writes, and how long it takes next to other dirty data.
//!
//! [`study`] writes and fsyncs a small file, in turns with and without another file's dirty data in
//! the same file system. The tracer reports each write with the inode whose page it contains, so
//! the writes of an fsync can be divided exactly: the file's data, metadata, and data of others.

#![forbid(unsafe_code)]

mod error;
mod files;
mod fsync;
mod owners;
mod summary;

pub use error::StorageError;
pub use fsync::{FsyncPlan, study};
