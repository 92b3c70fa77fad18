//! Recordings for tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{
    ClockReport, CpuInterval, Edge, Effect, Header, Level, PacedFrame, Row, RowSink, Sum, World,
};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

use crate::recording::{RecordingError, RecordingReader, RecordingWriter};

/// Returns a header in which even easily forgotten fields are set.
pub(super) fn header() -> Header {
    Header {
        machine: Machine {
            host: "röchling".to_owned(),
            ..Machine::default()
        },
        began_unix: 1_700_000_000,
        cpus: vec![CpuInterval {
            cpu: Cpu(3),
            begin: Nanos(-5),
            end: Nanos::from_secs(20),
        }],
        clock: Some(ClockReport {
            frequency_hz: 2.495_998_123e9,
            drift_ppm: 0.1,
            ..<_>::default()
        }),
        ..Header::new(World::Simulated, Level::Kernel, "0.1.0")
    }
}

/// Returns rows of every kind: spans, frames, edges and sums.
pub(super) fn rows() -> (SourceTable, Vec<Row>) {
    let mut sources = SourceTable::default();
    let ids = [
        sources.intern(Source::kernel(
            Kind::Irq,
            "local_timer",
            "tick_nohz_handler",
        )),
        sources.intern(Source::idle()),
        sources.intern(Source {
            kind: Kind::Task,
            owner: Owner::Program,
            name: "game-server".into(),
            detail: "".into(),
            thread: Some(Thread {
                pid: 71,
                tid: 72,
                program: "game".into(),
            }),
        }),
    ];
    let rows = (0..200).map(|i| {
        let span = Span {
            cpu: Cpu(i % 2),
            start: Nanos(i64::from(i) * 1_000),
            dur: Nanos(i64::from(i % 7) * 100),
            self_time: Nanos(i64::from(i % 7) * 90 - 3),
            source: ids[(i % 3) as usize],
        };
        if i % 50 == 7 {
            let due = span.start - Nanos(40);
            return Row::Frame(PacedFrame { span, due });
        }
        if i % 50 == 8 {
            let effect = match i {
                8 => Effect::Woke(72),
                58 => Effect::Queued("vmstat_update".into()),
                _ => Effect::Raised("TIMER".into()),
            };
            return Row::Edge(Edge { span, effect });
        }
        if i % 50 != 49 {
            return Row::Span(span);
        }
        let mut histogram = Histogram::default();
        histogram.record(Nanos(i64::from(i)));
        Row::Sum(Sum {
            span,
            count: 1,
            max: Nanos(i64::from(i)),
            histogram,
        })
    });
    (sources, rows.collect())
}

pub(super) fn write(path: &Path, sources: &SourceTable, rows: &[Row]) {
    let mut writer = RecordingWriter::create(path).unwrap();
    for row in rows {
        writer.row(sources, row);
    }
    writer.finish(&header()).unwrap();
}

/// Returns a row along with its source. The source id in the row is cleared, because it depends on
/// the table.
pub(super) fn with_source(sources: &SourceTable, row: &Row) -> (Source, Row) {
    let mut plain = row.clone();
    match &mut plain {
        Row::Span(span) => span.source = ticktax_model::SourceId(0),
        Row::Sum(sum) => sum.span.source = ticktax_model::SourceId(0),
        Row::Frame(frame) => frame.span.source = ticktax_model::SourceId(0),
        Row::Edge(edge) => edge.span.source = ticktax_model::SourceId(0),
    }
    (sources.get(row.source()).clone(), plain)
}

pub(super) fn replay(reader: &mut RecordingReader) -> Result<Vec<(Source, Row)>, RecordingError> {
    let mut rows = Vec::new();
    reader.replay(&mut |sources, row| rows.push(with_source(sources, row)))?;
    Ok(rows)
}

/// Writes a recording of one row as another program might write it, with a current header.
pub(super) fn foreign_recording(path: &Path) {
    let json = serde_json::to_string(&header()).unwrap();
    let edit = ("OPTIONAL INT64 max_ns", "REQUIRED INT64 max_ns");
    foreign(path, edit, "softirq", Some(("ticktax", json)));
}

/// Writes a Parquet file of one row as another program might write it, with the columns of a
/// recording, all of them optional. In the text of the schema, the first text of `edit` is replaced
/// by the second.
pub(super) fn foreign(path: &Path, edit: (&str, &str), kind: &str, key: Option<(&str, String)>) {
    let file = Foreign {
        properties: WriterProperties::default().into(),
        edit,
        kind,
        key,
        rows: 1,
        detail: &"".into(),
    };
    file.write(path);
}

/// Writes a recording of identical rows as another program might write it, with these storage
/// properties.
pub(super) fn foreign_rows(
    path: &Path,
    properties: &WriterPropertiesPtr,
    rows: usize,
    detail: &ByteArray,
) {
    let json = serde_json::to_string(&header()).unwrap();
    let file = Foreign {
        properties: properties.clone(),
        edit: ("OPTIONAL INT64 max_ns", "REQUIRED INT64 max_ns"),
        kind: "softirq",
        key: Some(("ticktax", json)),
        rows,
        detail,
    };
    file.write(path);
}

/// A file as another program might write it.
struct Foreign<'f> {
    properties: WriterPropertiesPtr,
    edit: (&'f str, &'f str),
    kind: &'f str,
    key: Option<(&'f str, String)>,
    rows: usize,
    detail: &'f ByteArray,
}

impl Foreign<'_> {
    fn write(self, path: &Path) {
        let Self {
            properties,
            edit,
            kind,
            key,
            rows,
            detail,
        } = self;
        let schema = "message other {
        OPTIONAL DOUBLE extra; OPTIONAL INT32 source_id; OPTIONAL BYTE_ARRAY kind (UTF8);
        OPTIONAL BYTE_ARRAY source (UTF8); OPTIONAL BYTE_ARRAY detail (UTF8);
        OPTIONAL BYTE_ARRAY owner (UTF8); OPTIONAL BYTE_ARRAY program (UTF8);
        OPTIONAL INT32 pid; OPTIONAL INT32 tid; OPTIONAL INT64 count; OPTIONAL INT64 max_ns;
        OPTIONAL BYTE_ARRAY histogram; OPTIONAL INT32 cpu; OPTIONAL INT64 start_ns;
        OPTIONAL INT64 dur_ns; OPTIONAL INT64 self_ns; OPTIONAL INT64 due_ns; }";
        let schema = Arc::new(parse_message_type(&schema.replace(edit.0, edit.1)).unwrap());
        let file = fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema.clone(), properties).unwrap();
        if let Some((key, value)) = key {
            writer.append_key_value_metadata(KeyValue::new(key.to_owned(), Some(value)));
        }
        let mut group = writer.next_row_group().unwrap();
        for field in schema.get_fields() {
            let mut column = group.next_column().unwrap().unwrap();
            let some = vec![1i16; rows];
            let some = Some(some.as_slice());
            let none = vec![0i16; rows];
            let none = Some(none.as_slice());
            let text = match field.name() {
                "kind" => Some(kind.into()),
                "owner" => Some("kernel".into()),
                "source" => Some("NET_RX".into()),
                "detail" => Some(detail.clone()),
                _ => None,
            };
            match (field.get_physical_type(), text, field.name()) {
                (parquet::basic::Type::BYTE_ARRAY, Some(text), _) => column
                    .typed::<ByteArrayType>()
                    .write_batch(&vec![text; rows], some, None),
                (parquet::basic::Type::BYTE_ARRAY, None, _) => {
                    column.typed::<ByteArrayType>().write_batch(&[], none, None)
                }
                (parquet::basic::Type::INT32, _, "pid" | "tid") => {
                    column.typed::<Int32Type>().write_batch(&[], none, None)
                }
                (parquet::basic::Type::INT32, ..) => {
                    column
                        .typed::<Int32Type>()
                        .write_batch(&vec![1; rows], some, None)
                }
                // Write no value if the column is optional. In recordings that ticktax writes,
                // `max_ns` is required.
                (parquet::basic::Type::INT64, _, "max_ns" | "due_ns") if field.is_optional() => {
                    column.typed::<Int64Type>().write_batch(&[], none, None)
                }
                (parquet::basic::Type::INT64, ..) => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(&vec![9; rows], some, None)
                }
                _ => column
                    .typed::<parquet::data_type::DoubleType>()
                    .write_batch(&vec![0.5; rows], some, None),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }
}
