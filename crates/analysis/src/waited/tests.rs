use proptest::prelude::*;
use ticktax_model::recording::{CodeFile, CodeFunction, Edge, Row};
use ticktax_model::victim::{Blocked, BlockedOn, StalledThreads, ThreadTimes};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

use super::{LIMITS, Limits, WaitCodes};
use crate::sampled::FunctionNames;
use crate::timeline::{Keep, Timeline};

/// Length of each wait.
const LENGTH: Nanos = Nanos::from_micros(100);

const DETAIL: &str = "disk in fsync at jbd2_log_wait_commit<ext4_sync_file";

fn source(kind: Kind, pid: i32, detail: &str) -> Source {
    Source {
        kind,
        owner: Owner::Program,
        name: "db".into(),
        detail: detail.into(),
        thread: Some(Thread {
            pid,
            tid: pid,
            program: "db".into(),
        }),
    }
}

fn place(syscall: &str) -> Blocked {
    Blocked {
        on: BlockedOn::Disk,
        syscall: Some(syscall.to_owned()),
        function: Some("jbd2_log_wait_commit".to_owned()),
        caller: Some("ext4_sync_file".to_owned()),
        lock: None,
        time: Nanos(300),
        count: 3,
        max: Nanos(100),
        longest: Vec::new(),
        ended_by: Vec::new(),
        threads: StalledThreads::default(),
        codes: Vec::new(),
        coded: 0,
    }
}

/// Reads waits and edges, given as the process, the start and, for an edge, the code.
fn read(limits: Limits, rows: &[(i32, i64, Option<&str>)]) -> (WaitCodes, SourceTable) {
    let mut sources = SourceTable::default();
    let (mut timeline, mut codes) = (Timeline::new(Keep::NOTHING), WaitCodes::new(limits));
    for &(pid, start, code) in rows {
        let row = match code {
            None => Row::Span(Span {
                cpu: Cpu(0),
                start: Nanos(start),
                dur: LENGTH,
                self_time: LENGTH,
                source: sources.intern(source(Kind::Wait, pid, DETAIL)),
            }),
            Some(code) => Row::Edge(Edge::waited(
                Cpu(0),
                Nanos(start),
                Nanos(start + 150_000),
                sources.intern(source(Kind::Task, pid, "")),
                code.into(),
            )),
        };
        codes.event(&timeline.event(&sources, &row).0);
    }
    (codes, sources)
}

/// Returns the codes of the place of an `fsync`, as object, functions, time and count.
fn codes(rows: &[(i32, i64, Option<&str>)]) -> Vec<(String, String, i64, u64)> {
    let (codes, sources) = read(LIMITS, rows);
    let file = CodeFile {
        name: "db".to_owned(),
        functions: vec![CodeFunction {
            name: "flush".to_owned(),
            first_offset: 0x10,
            last_offset: 0x20,
        }],
        ..CodeFile::default()
    };
    let codes = codes.named(&FunctionNames::new(&[file]));
    let mut blocked = [place("write"), place("fsync")];
    codes.add_to_places(&mut blocked, &sources, &|pid, _| pid == 7);
    assert!(blocked[0].codes.is_empty());
    let [_, fsync] = blocked;
    let named = fsync.codes.into_iter().map(|sum| {
        let functions = sum.code.stack.iter();
        let functions: Vec<String> = functions
            .map(|place| place.function.clone().unwrap_or_default())
            .collect();
        let object = sum.code.object.unwrap_or_default();
        (object, functions.join(" "), sum.time.0, sum.count)
    });
    named.collect()
}

#[test]
fn a_wait_has_the_code_of_its_edge() {
    let wal = Some("/db/wal\tlibc.so.6+0x1;db+0x18");
    let rows = [
        (7, 1_000_000, None),
        (7, 1_000_000, wal),
        (7, 2_000_000, None),
        (7, 2_000_000, wal),
        (7, 3_000_000, None),
        (7, 3_000_000, Some("/db/log\t")),
    ];
    assert_eq!(
        codes(&rows),
        [
            ("/db/wal".to_owned(), " flush".to_owned(), 200_000, 2),
            ("/db/log".to_owned(), String::new(), 100_000, 1),
        ]
    );
}

#[test]
fn an_edge_without_its_wait_names_nothing() {
    let wal = Some("/db/wal\tdb+0x18");
    // Another start, another thread, and another process.
    assert!(codes(&[(7, 1_000_000, None), (7, 1_000_001, wal)]).is_empty());
    assert!(codes(&[(8, 1_000_000, None), (7, 1_000_000, wal)]).is_empty());
    assert!(codes(&[(8, 1_000_000, None), (8, 1_000_000, wal)]).is_empty());
}

#[test]
fn an_edge_can_follow_later_waits() {
    let wal = Some("/db/wal\tdb+0x18");
    let mut rows: Vec<_> = (0..400).map(|nth| (7, nth * 120_000, None)).collect();
    rows.push((7, 0, wal));
    assert_eq!(codes(&rows).len(), 1);
    // Waits are forgotten after a second.
    rows.insert(400, (7, 2_000_000_000, None));
    assert!(codes(&rows).is_empty());
}

/// Returns the number of waits of process 7 with a code, and the number of codes left out.
fn kept_and_left_out(limits: Limits, rows: &[(i32, i64, Option<&str>)]) -> (u64, u64) {
    let (codes, sources) = read(limits, rows);
    assert!(codes.recent.count() <= limits.recent);
    assert!(codes.all.len() <= limits.waits);
    assert!(codes.code_bytes <= limits.code_bytes);
    let mut times = ThreadTimes {
        blocked: vec![place("fsync")],
        ..ThreadTimes::default()
    };
    codes.add_to(&mut times, Nanos::ZERO, &sources, &|pid, _| pid == 7);
    (times.blocked[0].coded, times.codes_left_out)
}

#[test]
fn codes_without_room_are_counted() {
    let log = Some("/db/log\tdb+0x18");
    let names: Vec<String> = (0..9).map(|nth| format!("/db/{nth}\tdb+0x18")).collect();
    let mut rows: Vec<_> = (0..9).map(|nth| (7, nth * 120_000, None)).collect();
    let edges = (0..).zip(&names);
    rows.extend(edges.map(|(nth, name)| (7, nth * 120_000, Some(&**name))));
    rows.extend([(7, 1_200_000, None), (7, 1_200_000, log)]);
    assert_eq!(kept_and_left_out(LIMITS, &rows), (10, 0));
    let few_codes = Limits {
        code_bytes: 1_000,
        ..LIMITS
    };
    assert_eq!(kept_and_left_out(few_codes, &rows), (2, 8));
    let few_waits = Limits { waits: 4, ..LIMITS };
    assert_eq!(kept_and_left_out(few_waits, &rows), (4, 6));
    let short_memory = Limits {
        recent: 4,
        ..LIMITS
    };
    let (kept, left_out) = kept_and_left_out(short_memory, &rows);
    assert_eq!(kept + left_out, 10);
    assert!((1..=5).contains(&kept), "{kept}");
}

proptest! {
    /// Each code of a wait is either kept or counted, and nothing else is counted.
    #[test]
    fn nothing_is_left_out_silently(
        waits in prop::collection::vec((0..5_i32, 0..4_i64, 0..3_usize, 0..6_usize), 1..120),
        recent in 1..40_usize,
        most in 1..40_usize,
        code_bytes in 0..4_000_usize,
    ) {
        let names: Vec<String> = (0..3).map(|nth| format!("/{nth}\tdb+0x18")).collect();
        let mut at = 0;
        // The edge of each wait arrives after up to five others.
        let mut rows: Vec<(usize, _)> = Vec::new();
        for (nth, &(pid, pause, name, late)) in waits.iter().enumerate() {
            at += 100_000 + pause * 400_000_000;
            rows.push((2 * nth, (pid + 5, at, None)));
            rows.push((2 * (nth + late) + 1, (pid + 5, at, Some(&*names[name]))));
        }
        rows.sort_by_key(|(order, _)| *order);
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        let limits = Limits { recent, waits: most, code_bytes };
        let (kept, left_out) = kept_and_left_out(limits, &rows);
        let own = waits.iter().filter(|(pid, ..)| pid + 5 == 7).count() as u64;
        prop_assert_eq!(kept + left_out, own);
    }
}
