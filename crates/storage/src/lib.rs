//! Measures what an fsync writes, how long it takes next to other dirty data, and which programs
//! the kernel throttles because of dirty data.
//!
//! [`study`] writes and fsyncs a small file, in turns with and without another file's dirty data in
//! the same file system. The tracer reports each write with the inode whose page it contains, so
//! the writes of an fsync can be divided exactly: the file's data, metadata, and data of others.
//!
//! [`watch_pressure`] samples the dirty data of the machine and its devices. The tracer reports
//! each pause of a throttled writer, with the dirty data that counted against the limit.

#![forbid(unsafe_code)]

mod error;
mod files;
mod fsync;
mod owners;
mod pressure;
mod summary;

pub use error::StorageError;
pub use fsync::{FsyncPlan, study};
pub use pressure::watch_pressure;
