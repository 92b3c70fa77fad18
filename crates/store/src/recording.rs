//! The file format of recordings. A recording is one Parquet file that any Parquet tool can read.
//!
//! ```sql
//! SELECT source, sum(self_ns) FROM 'x.parquet' GROUP BY 1
//! ```
//!
//! Each row of the file is a [`Row`](ticktax_model::recording::Row). A row with a `due_ns` is a
//! frame of a paced loop. A row with an `edge` is a wake-up edge: `edge_tid` is the woken thread,
//! and `edge_to` is the work item's function or the softirq. The
//! [`Header`](ticktax_model::recording::Header) is JSON in the file's key-value metadata, under the
//! key `ticktax`.
//!
//! Recordings are read and written as streams, so memory is limited by the size of a row group
//! rather than by the length of the recording.

mod ahead;
mod checksum;
mod column;
mod edges;
mod error;
mod limits;
mod memory;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

pub use error::RecordingError;
pub use memory::RecordingBuffer;
pub use reader::RecordingReader;
pub use writer::RecordingWriter;
