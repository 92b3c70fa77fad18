//! The columns in a recording's file, and their encodings.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

use super::checksum;

/// Key of the header in the key-value metadata of the file.
pub(super) const HEADER_KEY: &str = "ticktax";

/// Number of rows in a row group. The writer buffers a whole row group in memory.
pub(super) const GROUP_ROWS: usize = 64 * 1024;

/// Exclusive upper limit for `source_id` when a recording is written. Recordings of real machines
/// stay far below it. For a small file, the reader's limit is lower.
pub(super) const SOURCES_MAX: u32 = 1 << 24;

pub(super) const CPU: &str = "cpu";
pub(super) const START: &str = "start_ns";
pub(super) const DUR: &str = "dur_ns";
pub(super) const SELF: &str = "self_ns";
pub(super) const KIND: &str = "kind";
pub(super) const SOURCE: &str = "source";
pub(super) const DETAIL: &str = "detail";
pub(super) const OWNER: &str = "owner";
pub(super) const PROGRAM: &str = "program";
pub(super) const PID: &str = "pid";
pub(super) const TID: &str = "tid";
pub(super) const COUNT: &str = "count";
pub(super) const MAX: &str = "max_ns";
pub(super) const HISTOGRAM: &str = "histogram";
pub(super) const SOURCE_ID: &str = "source_id";
/// When a frame was due. Only frames have a value.
pub(super) const DUE: &str = "due_ns";
/// Kind of an edge. Only edges have a value.
pub(super) const EDGE: &str = "edge";
/// Tid of the thread that an edge woke. Only such edges have a value.
pub(super) const EDGE_TID: &str = "edge_tid";
/// Function of the work item that an edge queued, name of the softirq that it raised, or code that
/// was sampled. Only such edges have a value.
pub(super) const EDGE_TO: &str = "edge_to";

/// Columns, in the order in which the file stores them and the writer fills them.
///
/// `source_id` numbers the sources in the file. Rows with the same number also have the same words,
/// so a reader decodes the words once per source rather than once per row. This accounts for most
/// of the reader's speed.
const MESSAGE: &str = "message ticktax {
    REQUIRED INT32 cpu;
    REQUIRED INT64 start_ns;
    REQUIRED INT64 dur_ns;
    REQUIRED INT64 self_ns;
    REQUIRED BYTE_ARRAY kind (UTF8);
    REQUIRED BYTE_ARRAY source (UTF8);
    REQUIRED BYTE_ARRAY detail (UTF8);
    REQUIRED BYTE_ARRAY owner (UTF8);
    OPTIONAL BYTE_ARRAY program (UTF8);
    OPTIONAL INT32 pid;
    OPTIONAL INT32 tid;
    REQUIRED INT64 count;
    REQUIRED INT64 max_ns;
    OPTIONAL BYTE_ARRAY histogram;
    REQUIRED INT32 source_id;
    OPTIONAL INT64 due_ns;
    OPTIONAL BYTE_ARRAY edge (UTF8);
    OPTIONAL INT32 edge_tid;
    OPTIONAL BYTE_ARRAY edge_to (UTF8);
}";

pub(super) fn message() -> Result<TypePtr, ParquetError> {
    parse_message_type(MESSAGE).map(Arc::new)
}

/// Returns the encoding of the columns. Times are stored as differences, and words in dictionaries.
/// All columns are compressed with Snappy.
pub(super) fn properties() -> WriterPropertiesPtr {
    let column = |name: &str| ColumnPath::from(name);
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(checksum::MADE_BY.to_owned());
    // A dictionary would not save space, because nearly all times are distinct.
    for name in [START, DUR, SELF, MAX, DUE] {
        builder = builder
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    builder = builder
        .set_column_dictionary_enabled(column(HISTOGRAM), false)
        .set_column_statistics_enabled(column(HISTOGRAM), EnabledStatistics::None);
    Arc::new(builder.build())
}
