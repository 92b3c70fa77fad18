//! The recording's file: one Parquet file, readable by any tool that reads Parquet.
//!
//! ```sql
//! SELECT source, sum(self_ns) FROM 'x.parquet' GROUP BY 1
//! ```
//!
//! A row is a [`Row`](super::Row): a frame of a paced loop where it says when it was `due_ns`, an edge
//! where it has an `edge`, with the thread that was woken in `edge_tid`, or the work item's function or
//! the softirq in `edge_to`. The [`Header`](super::Header) is JSON in the file's key-value metadata,
//! under the key `ticktax`. Both directions stream: memory is bounded by a row group,
//! whatever the length of the recording.

mod checksum;
mod column;
mod edges;
mod error;
mod limits;
mod reader;
mod rows;
mod schema;
mod schema_1;
#[cfg(test)]
mod tests;
mod writer;

pub use error::RecordingError;
pub use reader::RecordingReader;
pub use writer::RecordingWriter;
