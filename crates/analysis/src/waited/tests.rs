use ticktax_model::recording::{CodeFile, CodeFunction, Edge, Row};
use ticktax_model::victim::{Blocked, BlockedOn, StalledThreads};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

use super::WaitCodes;
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

/// Returns the codes of the place of an `fsync`, as object, functions, time and count. Waits and
/// edges are given as the process, the start and, for an edge, the code.
fn codes(rows: &[(i32, i64, Option<&str>)]) -> Vec<(String, String, i64, u64)> {
    let mut sources = SourceTable::default();
    let (mut timeline, mut codes) = (Timeline::new(Keep::NOTHING), WaitCodes::default());
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
