//! Tests extracting parts of recordings: how rows are cut, and which parts are refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_analysis::{Cut, CutError};
use ticktax_fixture::{books, process, row, watched_header, whole};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::ProgramTime;
use ticktax_model::recording::{Header, Level, Loss, Row, Sum};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Owner, Source, SourceTable};

use crate::ledger::fixture::{Fixture, scripts};
use crate::ledger::{statement, time_of};

/// Returns the statement for the part from `from` to `to`, relative to the start of the recording.
fn part(
    rows: &[Row],
    header: &Header,
    sources: &SourceTable,
    from: i64,
    to: i64,
) -> Result<Statement, CutError> {
    let mut cut = Cut::new(header, Some(Nanos(from)), Some(Nanos(to)))?;
    let rows: Vec<Row> = rows
        .iter()
        .filter_map(|row| cut.row(sources, row))
        .collect();
    let header = cut.finish(header)?;
    Ok(statement(&rows, &header, sources))
}

/// Returns the time per account. Accounts that a probe's gaps can move time between are added up.
fn times(statement: &Statement) -> BTreeMap<String, i64> {
    let mut times = BTreeMap::new();
    for account in &statement.accounts {
        let moved = matches!(
            account.class,
            Class::Probe | Class::EntryExit | Class::HypervisorOrFirmware | Class::Unexplained
        );
        let name = if moved {
            "the probe's".to_owned()
        } else {
            format!("{:?} {} {:?}", account.class, account.name, account.pid)
        };
        *times.entry(name).or_default() += account.time.0;
    }
    times.retain(|_, time| *time != 0);
    times
}

proptest! {
    #[test]
    fn parts_balance_and_add_up_to_the_recording(
        scripts in scripts(),
        at in 0.0f64..1.0,
        then in 0.0f64..1.0,
    ) {
        let fixture = Fixture::run(&scripts);
        let (header, sources, rows) = (&fixture.header, &fixture.sources, fixture.rows());
        let begin = header.cpus.iter().map(|books| books.begin).min().unwrap();
        let end = header.cpus.iter().map(|books| books.end).max().unwrap();
        let length = (end - begin).0;
        #[expect(clippy::cast_possible_truncation, reason = "a part of a length")]
        let point = |share: f64| (length as f64 * share) as i64;
        let mut points = [0, point(at), point(then), length];
        points.sort_unstable();
        let mut sum: BTreeMap<String, i64> = BTreeMap::new();
        for edges in points.windows(2).filter(|edges| edges[0] < edges[1]) {
            let part = part(&rows, header, sources, edges[0], edges[1]).unwrap();
            prop_assert!(part.balance.balances(), "{:?}: {:?}", edges, part.balance);
            for (name, time) in times(&part) {
                *sum.entry(name).or_default() += time;
            }
        }
        prop_assert_eq!(sum, times(&statement(&rows, header, sources)));
    }
}

/// Builds the rows of a program that runs from 0 to 100 and is interrupted from 40 to 60. A
/// function runs in the interrupt from 45 to 50.
fn interrupted() -> (Vec<Row>, Header, SourceTable) {
    let mut sources = SourceTable::default();
    let timer = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let function = sources.intern(Source::kernel(Kind::Irq, "local_timer", "wake"));
    let game = sources.intern(process(Owner::Program, "game", 7));
    let rows = vec![
        row(0, 45, 5, 5, function),
        row(0, 40, 20, 15, timer),
        row(0, 0, 100, 80, game),
    ];
    let mut header = watched_header();
    header.cpus.push(books(0, 0, 100));
    (rows, header, sources)
}

#[test]
fn a_row_across_an_edge_is_cut_with_all_its_nested_rows() {
    let (rows, header, sources) = interrupted();
    for (from, to, game, interrupt) in [
        (0, 47, 40, 7),
        (47, 100, 40, 13),
        (47, 49, 0, 2),
        (42, 58, 0, 16),
        (10, 20, 10, 0),
        (60, 70, 10, 0),
    ] {
        let part = part(&rows, &header, &sources, from, to).unwrap();
        assert!(part.balance.balances(), "{from} to {to}");
        assert_eq!(part.balance.elapsed, Nanos(to - from));
        let times = (
            time_of(&part, Class::Program).0,
            time_of(&part, Class::Irq).0,
        );
        assert_eq!(times, (game, interrupt), "{from} to {to}");
        let limitation = Limitation::PartOfRecording {
            from: Nanos(from),
            to: Nanos(to),
        };
        assert!(part.coverage.limitations.contains(&limitation));
        assert_eq!(part.part.map(|part| part.total), Some(Nanos(100)));
    }
}

/// A run has two rows, which arrive at its end: the program's code, and a system call that is
/// interrupted from 40 to 60.
#[test]
fn nested_rows_belong_to_the_row_that_contains_them() {
    let (mut rows, header, mut sources) = interrupted();
    let own = sources.intern(process(Owner::Program, "game", 7));
    let call = sources.intern(Source {
        detail: "in read".into(),
        ..process(Owner::Program, "game", 7)
    });
    rows.truncate(2);
    rows.extend([row(0, 0, 30, 30, own), row(0, 30, 70, 50, call)]);
    for (from, to, game, interrupt) in [
        (0, 20, 20, 0),
        (10, 35, 25, 0),
        (0, 50, 40, 10),
        (20, 100, 60, 20),
        (50, 80, 20, 10),
    ] {
        let part = part(&rows, &header, &sources, from, to).unwrap();
        assert!(
            part.balance.balances(),
            "{from} to {to}: {:?}",
            part.balance
        );
        let times = (
            time_of(&part, Class::Program).0,
            time_of(&part, Class::Irq).0,
        );
        assert_eq!(times, (game, interrupt), "{from} to {to}");
    }
}

/// A thread is throttled from 20 to 50, then waits for a CPU until 80.
#[test]
fn a_cut_throttled_wait_begins_with_the_time_held_by_the_quota() {
    let (_, header, mut sources) = interrupted();
    let source = sources.intern(Source {
        kind: Kind::Wait,
        detail: "throttled".into(),
        ..process(Owner::Program, "game", 7)
    });
    let wait = row(0, 20, 60, 30, source);
    for (from, to, dur, held) in [
        (0, 100, 60, 30),
        (40, 100, 40, 10),
        (0, 70, 50, 30),
        (0, 40, 20, 20),
        (60, 100, 20, 0),
    ] {
        let mut cut = Cut::new(&header, Some(Nanos(from)), Some(Nanos(to))).unwrap();
        let kept = cut.row(&sources, &wait).unwrap();
        let times = (kept.span().dur, kept.span().self_time);
        assert_eq!(times, (Nanos(dur), Nanos(held)), "{from} to {to}");
    }
}

/// A part keeps the list of processes present at the end, and so does a part of that part.
#[test]
fn a_part_knows_which_processes_were_present() {
    let (_, mut header, _) = interrupted();
    header.after.programs = [(7, ProgramTime::default())].into();
    for _ in 0..2 {
        let cut = Cut::new(&header, Some(Nanos(30)), Some(Nanos(80))).unwrap();
        header = cut.finish(&header).unwrap();
        assert_eq!(header.after.present(), Some([7].into()));
        assert!(header.after.programs.is_empty());
    }
    header.after.pids = None;
    assert_eq!(header.after.present(), None);
}

#[test]
fn a_part_of_a_part_is_selected_by_times_of_the_original_recording() {
    let (rows, header, sources) = interrupted();
    let mut cut = Cut::new(&header, Some(Nanos(30)), Some(Nanos(80))).unwrap();
    let rows: Vec<Row> = rows
        .iter()
        .filter_map(|row| cut.row(&sources, row))
        .collect();
    let header = cut.finish(&header).unwrap();
    let part = self::part(&rows, &header, &sources, 47, 70).unwrap();
    assert!(part.balance.balances());
    let part = part.part.unwrap();
    assert_eq!((part.from, part.to), (Nanos(47), Nanos(70)));
    assert_eq!(part.total, Nanos(100));
    let (at, begin, end) = (Nanos(10), Nanos(30), Nanos(80));
    assert_eq!(
        self::part(&rows, &header, &sources, 10, 50).unwrap_err(),
        CutError::Before { at, begin, end }
    );
}

#[test]
fn a_part_of_a_part_starts_at_its_own_wall_clock_time() {
    let (_, mut header, _) = interrupted();
    header.cpus = vec![books(0, 0, 10_000_000_000)];
    header.began_unix = 1_000;
    for (from, began_unix) in [(3, 1_003), (5, 1_005)] {
        let cut = Cut::new(&header, Some(Nanos::from_secs(from)), None).unwrap();
        header = cut.finish(&header).unwrap();
        assert_eq!(header.began_unix, began_unix);
    }
}

#[test]
fn losses_within_a_part_are_the_time_without_rows() {
    let (mut rows, mut header, sources) = interrupted();
    // Another row of the game covers 130 to 200. The rows from 100 to 130 are lost.
    rows.push(whole(0, 130, 70, rows[2].source()));
    header.cpus = vec![books(0, 0, 200)];
    header.coverage.lost = vec![Loss {
        events: 3,
        self_time: Nanos(30),
        ..Loss::none(Cpu(0))
    }];
    for (from, to, lost) in [(0, 100, 0), (90, 110, 10), (110, 140, 20), (0, 200, 30)] {
        let part = part(&rows, &header, &sources, from, to).unwrap();
        assert!(part.balance.balances(), "{from} to {to}");
        assert_eq!(time_of(&part, Class::Unexplained).0, lost, "{from} to {to}");
        assert_eq!(part.coverage.events_lost() > 0, lost > 0, "{from} to {to}");
    }
}

#[test]
fn parts_that_do_not_exist_are_refused() {
    let (rows, header, sources) = interrupted();
    let refused = |header: &Header, from, to| part(&rows, header, &sources, from, to).unwrap_err();
    let empty = |from, to| CutError::Empty {
        from: Nanos(from),
        to: Nanos(to),
    };
    assert_eq!(refused(&header, 60, 40), empty(60, 40));
    assert_eq!(refused(&header, 40, 40), empty(40, 40));
    assert_eq!(refused(&header, 100, 105), empty(100, 100));
    let at = Nanos::from_secs(1);
    let (begin, end) = (Nanos(0), Nanos(100));
    let beyond = CutError::Beyond { at, begin, end };
    assert_eq!(refused(&header, at.0, at.0 + 5), beyond);
    assert_eq!(refused(&header, 0, at.0), beyond);
    let counters = Header {
        level: Level::Proc,
        ..header.clone()
    };
    assert_eq!(refused(&counters, 0, 50), CutError::Counters);
    assert_eq!(
        refused(&ticktax_fixture::header(), 0, 50),
        CutError::NoTimes
    );
    let Row::Span(span) = rows[2] else {
        panic!("{:?}", rows[2]);
    };
    let sum = Row::Sum(Sum {
        span,
        count: 1,
        max: span.dur,
        histogram: Histogram::default(),
    });
    assert_eq!(
        part(&[sum], &header, &sources, 0, 50).unwrap_err(),
        CutError::Sums
    );
}
