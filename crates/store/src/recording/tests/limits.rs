//! Checks that files with values beyond the limits are rejected, with a one-line error.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use ticktax_model::recording::{CpuInterval, Edge, Effect, Header, PacedFrame, Row, RowSink, Sum};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Source, SourceTable, Span};

use super::helpers::{foreign_rows, header, replay, rows, write};
use crate::recording::{RecordingError, RecordingReader, RecordingWriter};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    (folder, path)
}

/// Returns the error message from opening or reading a file.
fn refusal(path: &Path) -> String {
    let outcome = RecordingReader::open(path).and_then(|mut reader| replay(&mut reader));
    let text = outcome.expect_err("it should be refused").to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.len() < 400, "{text}");
    text
}

fn refused_header(edit: impl FnOnce(&mut Header)) -> String {
    let (_folder, path) = folder();
    let mut header = header();
    edit(&mut header);
    RecordingWriter::create(&path)
        .unwrap()
        .finish(&header)
        .unwrap();
    refusal(&path)
}

fn refused_row(row: Row) -> String {
    let (_folder, path) = folder();
    let mut sources = SourceTable::default();
    sources.intern(Source::idle());
    write(&path, &sources, &[row]);
    refusal(&path)
}

fn span(cpu: u32, start: i64, dur: i64, self_time: i64) -> Span {
    Span {
        cpu: Cpu(cpu),
        start: Nanos(start),
        dur: Nanos(dur),
        self_time: Nanos(self_time),
        source: ticktax_model::SourceId(0),
    }
}

const YEAR: i64 = Nanos::from_days(365).0;

#[test]
fn headers_with_impossible_numbers_are_rejected() {
    for hz in [0, 100_001, 2_000_000_000, u32::MAX] {
        let text = refused_header(|header| header.machine.hz_configured = Some(hz));
        assert!(
            text.contains(&format!("HZ is {hz} but must be between 1 and 100000")),
            "{text}"
        );
    }
    let books = |cpu, begin, end| CpuInterval {
        cpu: Cpu(cpu),
        begin: Nanos(begin),
        end: Nanos(end),
    };
    let with = |books: Vec<CpuInterval>| refused_header(|header| header.cpus = books);
    assert!(with(vec![books(0, 0, 100 * YEAR)]).contains("within 73 years"));
    assert!(with(vec![books(0, 0, 290 * YEAR)]).contains("`end_ns` is"));
    assert!(with(vec![books(0, 0, 11 * YEAR)]).contains("at most 9 years long"));
    assert!(with(vec![books(0, i64::MIN, 0)]).contains("`begin_ns` is"));
    assert!(with(vec![books(0, 0, 1); 100_000]).contains("more than 16384 CPUs with accounts"));
    assert!(refused_header(|header| header.began_unix = 1 << 40).contains("before the year 2242"));
}

#[test]
fn headers_with_impossible_cpus_are_rejected() {
    let (_folder, path) = folder();
    let header = serde_json::to_string(&header()).unwrap();
    let header = header.replace("\"cpu\":3", "\"cpu\":2147483647");
    super::helpers::foreign(&path, ("", ""), "irq", Some(("ticktax", header)));
    assert!(refusal(&path).contains("invalid CPU number 2147483647"));
}

#[test]
fn rows_with_impossible_numbers_are_rejected() {
    for (row, words) in [
        (
            span(8_192, 0, 1, 1),
            "a row's CPU is 8192 but must be between 0 and 8191",
        ),
        (span(i32::MAX.unsigned_abs(), 0, 1, 1), "a row's CPU"),
        (span(0, 285 * YEAR, 1, 1), "a row's start"),
        (span(0, -100 * YEAR, 1, 1), "a row's start"),
        (span(0, 0, 285 * YEAR, 1), "a row's length"),
        (span(0, 0, -1, 0), "a row's length"),
        (span(0, 0, 1, i64::MIN), "a row's own time"),
    ] {
        let text = refused_row(Row::Span(row));
        assert!(text.contains(words), "{text}");
    }
    let (span, due) = (span(0, 0, 1, 1), Nanos(i64::MIN));
    assert!(refused_row(Row::Frame(PacedFrame { span, due })).contains("a frame was due"));
    let sum = |count, max| {
        Row::Sum(Sum {
            span,
            count,
            max: Nanos(max),
            histogram: Histogram::default(),
        })
    };
    assert!(refused_row(sum(u64::MAX, 1)).contains("a row's count"));
    assert!(refused_row(sum(1, i64::MAX)).contains("a row's longest interval"));
}

#[test]
fn the_total_time_of_rows_is_limited() {
    let (_folder, path) = folder();
    let (sources, rows) = rows();
    let nine_years = vec![Row::Span(span(0, 0, 9 * YEAR, 9 * YEAR)); 10];
    write(&path, &sources, &[&rows[..], &nine_years].concat());
    assert!(refusal(&path).contains("the time of all rows"));
}

#[test]
fn overlong_names_are_rejected() {
    let (_folder, path) = folder();
    let long = "a".repeat(100 * 1024);
    let mut sources = SourceTable::default();
    let source = sources.intern(Source::kernel(Kind::Irq, &long, ""));
    let span = Span {
        source,
        ..span(0, 0, 1, 1)
    };
    write(&path, &sources, &[Row::Span(span)]);
    let text = refusal(&path);
    assert!(
        text.contains("a value of the column `source` is larger than 4096 bytes"),
        "{text}"
    );
    let effect = Effect::Queued(long.into());
    assert!(refused_row(Row::Edge(Edge { span, effect })).contains("`edge_to` is larger"));
}

#[test]
fn the_number_of_sources_is_limited_by_the_file_size() {
    let (_folder, path) = folder();
    let mut sources = SourceTable::default();
    let mut writer = RecordingWriter::create(&path).unwrap();
    for number in 0..70_000 {
        let source = Source::kernel(Kind::Irq, &format!("{number}"), "");
        let span = Span {
            source: sources.intern(source),
            ..span(0, 0, 1, 1)
        };
        writer.row(&sources, &Row::Span(span));
    }
    writer.finish(&header()).unwrap();
    let most = 32_768 + fs::metadata(&path).unwrap().len() / 64;
    assert!(refusal(&path).contains(&format!("it has more than {most} sources")));
}

/// Writes a small file whose pages become far larger when decompressed.
fn compressible(path: &Path, detail: &[u8], rows: usize, dictionary: bool) {
    let level = ZstdLevel::try_new(3).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_enabled(dictionary)
        .set_data_page_size_limit(1 << 30)
        .set_dictionary_page_size_limit(1 << 30)
        .set_write_batch_size(rows);
    let detail = ByteArray::from(detail.to_vec());
    foreign_rows(path, &Arc::new(properties.build()), rows, &detail);
}

#[test]
fn pages_with_an_extreme_compression_ratio_are_rejected() {
    let (_folder, path) = folder();
    compressible(&path, &vec![0; 1 << 20], 40, false);
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < 100_000, "{size}");
    let text = refusal(&path);
    assert!(text.contains("a decompressed page of column"), "{text}");
}

#[test]
fn encodings_that_declare_their_own_memory_size_are_rejected() {
    let (_folder, path) = folder();
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_column_encoding("detail".into(), encoding)
            .build();
        foreign_rows(&path, &Arc::new(properties), 2, &"".into());
        assert!(refusal(&path).contains("has an unsupported encoding"));
    }
}

#[test]
fn overlong_words_are_shortened_in_errors() {
    let (_folder, path) = folder();
    let header = serde_json::to_string(&header()).unwrap();
    let long = format!("\"level\":\"{}\"", "x".repeat(100_000));
    let header = header.replace("\"level\":\"kernel\"", &long);
    super::helpers::foreign(&path, ("", ""), "irq", Some(("ticktax", header)));
    assert!(refusal(&path).contains("unknown variant"));
    let edit = ("OPTIONAL INT64 max_ns", "REQUIRED INT64 max_ns");
    let header = serde_json::to_string(&super::helpers::header()).unwrap();
    super::helpers::foreign(&path, edit, &"k".repeat(100_000), Some(("ticktax", header)));
    assert!(refusal(&path).contains("contains `kkkk"));
    let read = RecordingReader::open(&path).and_then(|mut reader| replay(&mut reader));
    assert!(matches!(read, Err(RecordingError::UnknownWord { .. })));
}
