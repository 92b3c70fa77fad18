//! Checks that recordings round-trip: reading returns what was written.

use std::fs;

use proptest::prelude::*;
use ticktax_model::recording::{Edge, Effect, Header, PacedFrame, Row, RowSink, Sum};
use ticktax_model::{
    Cpu, Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
};

use super::helpers::{foreign_recording, header, replay, rows, with_source, write};
use crate::recording::{RecordingReader, RecordingWriter};

fn a_source() -> impl Strategy<Value = Source> {
    let word = || "[a-zA-Z0-9/_:é ]{0,8}";
    let thread = (any::<i32>(), any::<i32>(), word()).prop_map(|(pid, tid, program)| Thread {
        pid,
        tid,
        program: program.into(),
    });
    (
        prop::sample::select(Kind::ALL.to_vec()),
        prop::sample::select(Owner::ALL.to_vec()),
        word(),
        word(),
        prop::option::of(thread),
    )
        .prop_map(|(kind, owner, name, detail, thread)| Source {
            kind,
            owner,
            name: name.into(),
            detail: detail.into(),
            thread,
        })
}

fn an_effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        any::<i32>().prop_map(Effect::Woke),
        "[a-z_]{0,9}".prop_map(|function| Effect::Queued(function.into())),
        "[A-Z_]{0,9}".prop_map(|softirq| Effect::Raised(softirq.into())),
        "[a-z_;]{0,9}".prop_map(|code| Effect::Sampled(code.into())),
        "[a-z_;]{0,9}".prop_map(|code| Effect::Profiled(code.into())),
    ]
}

fn a_row() -> impl Strategy<Value = (Source, Row)> {
    let lengths = prop::collection::vec(0i64..1_000_000_000, 0..20);
    // Limit lengths to about a year, so that all rows together stay below the limit of 146 years.
    let year = 1_i64 << 55;
    let when = || -(1_i64 << 61)..=1 << 61;
    let sum = (0..=1_i64 << 47, 0..=year, lengths);
    let span = (0..=Cpu(8191).0, when(), 0..=year, -year..=year);
    let special = prop_oneof![
        3 => Just(None),
        1 => when().prop_map(|due| Some(Ok(Nanos(due)))),
        2 => an_effect().prop_map(|effect| Some(Err(effect))),
    ];
    (a_source(), span, prop::option::of(sum), special).prop_map(|(source, span, sum, special)| {
        let (cpu, start, dur, self_time) = span;
        let span = Span {
            cpu: Cpu(cpu),
            start: Nanos(start),
            dur: Nanos(dur),
            self_time: Nanos(self_time),
            source: SourceId(0),
        };
        let row = match sum {
            None => match special {
                None => Row::Span(span),
                Some(Ok(due)) => Row::Frame(PacedFrame { span, due }),
                Some(Err(effect)) => Row::Edge(Edge { span, effect }),
            },
            Some((count, max, lengths)) => {
                let mut histogram = Histogram::default();
                for ns in lengths {
                    histogram.record(Nanos(ns));
                }
                let count = count.unsigned_abs();
                Row::Sum(Sum {
                    span,
                    count,
                    max: Nanos(max),
                    histogram,
                })
            }
        };
        (source, row)
    })
}

fn with_source_id(sources: &mut SourceTable, source: &Source, mut row: Row) -> Row {
    let id = sources.intern(source.clone());
    match &mut row {
        Row::Span(span) => span.source = id,
        Row::Sum(sum) => sum.span.source = id,
        Row::Frame(frame) => frame.span.source = id,
        Row::Edge(edge) => edge.span.source = id,
    }
    row
}

proptest! {
    #[test]
    fn any_rows_round_trip(rows in prop::collection::vec(a_row(), 0..60)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let mut writer = RecordingWriter::create(&path).unwrap();
        // The same id stands for a different source in each of these two tables.
        let mut tables = [SourceTable::default(), SourceTable::default()];
        for (i, (source, row)) in rows.iter().enumerate() {
            let table = &mut tables[i % 2];
            let row = with_source_id(table, source, row.clone());
            writer.row(table, &row);
        }
        writer.finish(&header()).unwrap();

        let mut reader = RecordingReader::open(&path).unwrap();
        prop_assert_eq!(reader.rows(), rows.len() as u64);
        prop_assert_eq!(reader.header(), &header());
        prop_assert_eq!(replay(&mut reader).unwrap(), rows);
    }
}

#[test]
fn rows_of_many_groups_replay_in_order_repeatedly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let mut sources = SourceTable::default();
    let mut writer = RecordingWriter::create(&path).unwrap();
    let count = 150_000;
    for i in 0..count {
        // Add a new source from time to time, so that row groups start with known sources and with
        // unknown ones.
        let name = format!("thread-{}", i / 10_000);
        let source = sources.intern(Source::kernel(Kind::Task, &name, ""));
        let span = Span {
            cpu: Cpu(0),
            start: Nanos(i),
            dur: Nanos(i * i),
            self_time: Nanos(-i),
            source,
        };
        writer.row(&sources, &Row::Span(span));
    }
    writer.finish(&header()).unwrap();

    let mut reader = RecordingReader::open(&path).unwrap();
    for _ in 0..2 {
        let mut next = 0;
        let mut each = |sources: &SourceTable, row: &Row| {
            let span = row.span();
            assert_eq!((span.start, span.dur), (Nanos(next), Nanos(next * next)));
            assert_eq!(
                *sources.get(span.source).name,
                format!("thread-{}", next / 10_000)
            );
            next += 1;
        };
        reader.replay(&mut each).unwrap();
        assert_eq!(next, count);
    }
}

#[test]
fn long_recordings_of_sums_are_split_by_their_histograms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let (sources, rows) = rows();
    let sum = rows.iter().find(|row| matches!(row, Row::Sum(_))).unwrap();
    write(&path, &sources, &vec![sum.clone(); 20_000]);
    let mut reader = RecordingReader::open(&path).unwrap();
    let read = replay(&mut reader).unwrap();
    assert_eq!(read.len(), 20_000);
    assert!(read.iter().all(|row| *row == with_source(&sources, sum)));
}

#[test]
fn headers_are_written_with_the_current_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let writer = RecordingWriter::create(&path).unwrap();
    writer
        .finish(&Header {
            schema: 0,
            ..header()
        })
        .unwrap();
    assert_eq!(RecordingReader::open(&path).unwrap().header(), &header());
}

#[test]
fn files_in_memory_are_read_like_files_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let (sources, rows) = rows();
    write(&path, &sources, &rows);
    let bytes = fs::read(&path).unwrap().into();
    let mut reader = RecordingReader::from_bytes("x.parquet", bytes).unwrap();
    assert_eq!(
        replay(&mut reader).unwrap(),
        replay(&mut RecordingReader::open(&path).unwrap()).unwrap()
    );
}

#[test]
fn reordered_optional_and_additional_columns_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    foreign_recording(&path);
    let mut reader = RecordingReader::open(&path).unwrap();
    let rows = replay(&mut reader).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0, Source::kernel(Kind::Softirq, "NET_RX", ""));
}
