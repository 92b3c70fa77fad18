//! Recordings as Parquet files, which any tool for Parquet can read:
//!
//! ```sql
//! SELECT source, sum(self_ns) FROM 'x.parquet' GROUP BY 1
//! ```
//!
//! A line of the file is a [`Row`](ticktax_model::recording::Row). It is a frame of a paced loop if
//! `due_ns` has a value, and an edge if `edge` has one; the woken thread is then in `edge_tid`, and
//! a work item's function or a softirq in `edge_to`. The
//! [`Header`](ticktax_model::recording::Header) is JSON in the key-value metadata, under the key
//! `ticktax`.
//!
//! Reader and writer stream: each holds at most one row group in memory.

mod checksum;
mod column;
mod edges;
mod error;
mod limits;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

pub use error::RecordingError;
pub use reader::RecordingReader;
pub use writer::RecordingWriter;
