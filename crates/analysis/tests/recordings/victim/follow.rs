//! Tests following a program through a recording whose tracer did not follow it. The result is
//! compared with a recording from a tracer that did.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ticktax_analysis::{Follow, FollowError, Followed, RecordingAnalysis, Subject};
use ticktax_fixture::{books, process, thread, whole};
use ticktax_model::document::Document;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Throttling;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::{Edge, Effect, EndedEarly, Header, Level, Loss, Row, RowSink, Sum};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{OffCpuReason, Target, ThreadPolicy, ThreadState};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Owner, Source, SourceTable};

use super::fixture::{Event, Fixture, events};

const MS: i64 = 1_000_000;

/// Returns `header`, turned into the header of a machine-wide recording with wake-ups.
fn machine(header: &Header) -> Header {
    let mut header = Header {
        victim: None,
        ..header.clone()
    };
    header.coverage.attached.push(Hook::SchedWaking);
    header
}

fn follow(
    rows: &[Row],
    header: &Header,
    sources: &SourceTable,
    subject: Subject,
) -> Result<Followed, FollowError> {
    let mut follow = Follow::new(header, subject)?;
    for row in rows {
        follow.row(sources, row);
    }
    follow.finish(header, sources)
}

fn rows_of(followed: &Followed, rows: &[Row]) -> Vec<Row> {
    let mut all = Vec::new();
    for row in rows {
        followed.row(row, &mut |_, row| all.push(row.clone()));
    }
    all
}

fn statement(followed: &Followed, rows: &[Row]) -> Statement {
    let mut analysis = RecordingAnalysis::audit(followed.header());
    for row in rows {
        followed.row(row, &mut |sources, row| analysis.row(sources, row));
    }
    let sources = followed.sources();
    match analysis.finish(followed.header(), sources, 1) {
        Document::Statement(statement) => *statement,
        other => panic!("{other:?}"),
    }
}

/// An off-CPU interval: thread ID, whether the thread waited (rather than slept), start and end.
type Off = (i32, bool, i64, i64);

/// Returns the off-CPU rows that end when their thread starts to run. Before a thread's first
/// on-CPU period, only the wait that follows its first wake-up is included.
fn off_cpu_rows(rows: &[Row], sources: &SourceTable) -> BTreeSet<Off> {
    let mut runs: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
    for row in rows {
        let source = sources.get(row.source());
        let thread = source.thread.as_ref().filter(|_| source.kind == Kind::Task);
        if let Some(thread) = thread {
            let start = row.span().start.0;
            let (first, last) = runs.entry(thread.tid).or_insert((start, start));
            (*first, *last) = ((*first).min(start), (*last).max(start));
        }
    }
    let off = rows.iter().filter_map(|row| {
        let (span, source) = (row.span(), sources.get(row.source()));
        let tid = source.thread.as_ref()?.tid;
        let (reason, _) = OffCpuReason::from_detail(&source.detail)?;
        let &(first, last) = runs.get(&tid)?;
        let waited = matches!(
            reason,
            OffCpuReason::Woken | OffCpuReason::Preempted | OffCpuReason::Throttled
        );
        let is_between = span.start.0 >= first || reason == OffCpuReason::Woken;
        let counts = span.dur > Nanos::ZERO && span.end().0 <= last && is_between;
        counts.then_some((tid, waited, span.start.0, span.end().0))
    });
    off.collect()
}

/// Returns the rows that a machine-wide recording of the same scenario would contain. That
/// recording has no wait rows, but it has a wake-up at the start of each wait that followed one.
fn as_machine(fixture: &Fixture) -> Vec<Row> {
    let mut sources = fixture.sources.clone();
    let idle = sources.intern(Source::idle());
    let mut rows = Vec::new();
    for row in &fixture.rows {
        let source = fixture.sources.get(row.source());
        if source.kind != Kind::Wait {
            rows.push(row.clone());
            continue;
        }
        let woken = OffCpuReason::from_detail(&source.detail)
            .is_some_and(|(reason, _)| reason == OffCpuReason::Woken);
        if let Some(thread) = source.thread.as_ref().filter(|_| woken) {
            let effect = Effect::Woke(thread.tid);
            rows.push(Row::Edge(Edge::new(Cpu(0), row.span().start, idle, effect)));
        }
    }
    rows
}

proptest! {
    #[test]
    fn derived_waits_equal_those_that_the_tracer_saw(events in events()) {
        let mut fixture = Fixture::run(&events);
        fixture.sources.intern(Source::idle());
        let rows = as_machine(&fixture);
        let mut header = machine(&fixture.header);
        // Idle CPUs do not disprove a wait by a real-time thread. For other threads they would
        // disprove waits here, because CPUs are idle at random in these scenarios.
        let policy = SpecialPolicy::Fifo(1);
        header.policies = (10..14).map(|tid| ThreadPolicy { pid: 10, tid, policy }).collect();
        let subject = Subject::Processes(vec![10]);
        let followed = match follow(&rows, &header, &fixture.sources, subject) {
            Ok(followed) => followed,
            Err(error) => return Err(TestCaseError::fail(format!("{error}"))),
        };
        let derived = rows_of(&followed, &rows);
        prop_assert_eq!(
            off_cpu_rows(&derived, followed.sources()),
            off_cpu_rows(&fixture.rows, &fixture.sources)
        );
        let statement = statement(&followed, &rows);
        let victim = statement.victim.unwrap();
        let threads = victim.threads.unwrap();
        prop_assert!(threads.balances(), "{:?}", threads.imbalances);
    }
}

/// Builds a recording in which a game is preempted by a compiler for 4 ms, sleeps for 10 ms, and is
/// preempted again.
fn game() -> (Vec<Row>, Header, SourceTable) {
    let mut sources = SourceTable::default();
    let game = sources.intern(process(Owner::Program, "game", 10));
    let helper = sources.intern(thread(Owner::Program, "audio", "game", (10, 11)));
    let compiler = sources.intern(process(Owner::Program, "cc1", 20));
    let idle = sources.intern(Source::idle());
    let ran = |from: i64, to: i64, source| whole(0, from * MS, (to - from) * MS, source);
    let woke = |at: i64, tid| {
        Row::Edge(Edge::new(
            Cpu(0),
            Nanos(at * MS),
            compiler,
            Effect::Woke(tid),
        ))
    };
    let rows = vec![
        ran(0, 5, game),
        ran(5, 9, compiler),
        ran(9, 10, game),
        ran(10, 20, idle),
        woke(22, 10),
        woke(23, 11),
        ran(20, 26, compiler),
        ran(26, 27, game),
        ran(27, 28, helper),
        ran(28, 30, compiler),
        ran(30, 31, game),
    ];
    let mut header = machine(&ticktax_fixture::header());
    header.cpus.push(books(0, 0, 31 * MS));
    (rows, header, sources)
}

fn times(statement: &Statement) -> BTreeMap<ThreadState, i64> {
    let threads = statement.victim.as_ref().unwrap().threads.as_ref();
    let accounts = threads.unwrap().accounts.iter();
    accounts
        .map(|account| (account.state, account.time.0 / MS))
        .collect()
}

#[test]
fn a_program_can_be_analysed_after_a_machine_wide_recording() {
    let (rows, header, sources) = game();
    for (subject, running, waiting) in [
        // The game waits from 5 to 9 ms, 22 to 26 ms and 27 to 30 ms. Its helper waits from 23 to
        // 27 ms.
        (Subject::Processes(vec![10]), 9, 15),
        (Subject::Program("game".to_owned()), 9, 15),
        (Subject::Thread(11), 1, 4),
        (Subject::Thread(10), 8, 11),
    ] {
        let followed = follow(&rows, &header, &sources, subject.clone()).unwrap();
        let statement = statement(&followed, &rows);
        let times = times(&statement);
        assert_eq!(times[&ThreadState::Running], running, "{subject}");
        assert_eq!(times[&ThreadState::Waiting], waiting, "{subject}");
        let victim = statement.victim.as_ref().unwrap();
        assert_eq!(victim.name, "game");
        let threads = victim.threads.as_ref().unwrap();
        assert!(threads.balances());
        assert_eq!(threads.behind[0].name, "cc1");
        let derived =
            |limitation: &&Limitation| matches!(limitation, Limitation::WaitsDerived { .. });
        assert!(
            statement
                .coverage
                .limitations
                .iter()
                .find(derived)
                .is_some()
        );
        assert!(statement.waits.is_none(), "waits of the whole machine");
    }
}

#[test]
fn a_cgroup_is_analysed_with_its_descendants() {
    let (rows, mut header, sources) = game();
    let game = Subject::cgroup("/sys/fs/cgroup/cpu,cpuacct/games");
    let refused = follow(&rows, &header, &sources, game.clone()).unwrap_err();
    assert_eq!(refused, FollowError::NoCgroups);
    header.cgroups = Some(
        [
            ("/games/a".to_owned(), [10].into()),
            ("/gamesx".to_owned(), [20].into()),
        ]
        .into(),
    );
    let followed = follow(&rows, &header, &sources, game).unwrap();
    let victim = followed.header().victim.as_ref().unwrap();
    assert_eq!(victim.target, Target::Cgroup("/games".to_owned()));
    assert_eq!(
        times(&statement(&followed, &rows))[&ThreadState::Running],
        9
    );
    for folder in [
        "/sys/fs/cgroup/unified/pods/a",
        "/sys/fs/cgroup/cpu/pods/a",
        "/sys/fs/cgroup/pods/a",
        "/pods/a",
    ] {
        assert_eq!(
            Subject::cgroup(folder),
            Subject::Cgroup("/pods/a".to_owned()),
            "{folder}"
        );
    }
}

#[test]
fn a_wait_without_a_wake_up_is_unknown_unless_the_cpu_was_busy_and_no_event_was_lost() {
    let (mut rows, header, sources) = game();
    // The game's wake-up is missing. The game left the CPU at 10 ms, and the CPU was then idle for
    // 10 ms.
    rows.remove(4);
    let game = || Subject::Thread(10);
    let unseen = |followed: &Followed, rows: &[Row]| {
        times(&statement(followed, rows))
            .get(&ThreadState::Unseen)
            .copied()
    };
    let followed = follow(&rows, &header, &sources, game()).unwrap();
    assert_eq!(unseen(&followed, &rows), Some(16));

    let (rows, header, sources) = game_beside_unreported(Nanos(200_000));
    let followed = follow(&rows, &header, &sources, game()).unwrap();
    assert_eq!(
        unseen(&followed, &rows),
        None,
        "an unreported thread ran for 5 % of the wait"
    );

    let (rows, mut header, sources) = game_beside_unreported(Nanos(200_001));
    let followed = follow(&rows, &header, &sources, game()).unwrap();
    assert_eq!(
        unseen(&followed, &rows),
        Some(4),
        "an unreported thread ran for longer"
    );
    header.coverage.lost.push(Loss {
        events: 1,
        ..Loss::none(Cpu(0))
    });
    let followed = follow(&rows, &header, &sources, game()).unwrap();
    assert_eq!(unseen(&followed, &rows), Some(4 + 3), "events were lost");
}

/// Builds the same recording as [`game`], except that an unreported thread runs at the start of the
/// first wait, which lasts 4 ms, and the compiler only for the rest of it.
fn game_beside_unreported(time: Nanos) -> (Vec<Row>, Header, SourceTable) {
    let (mut rows, header, mut sources) = game();
    let unreported = sources.intern(Source::kernel(
        Kind::Task,
        ticktax_model::kernel_words::UNREPORTED,
        "",
    ));
    let compiler = rows[1].source();
    let start = 5 * MS;
    let rest = whole(0, start + time.0, 4 * MS - time.0, compiler);
    rows[1] = whole(0, start, time.0, unreported);
    rows.insert(2, rest);
    (rows, header, sources)
}

#[test]
fn impossible_subjects_are_refused() {
    let (rows, header, sources) = game();
    let refuse = |header: &Header, rows: &[Row], subject| {
        follow(rows, header, &sources, subject).unwrap_err()
    };
    let nobody = Subject::Processes(vec![99]);
    let error = refuse(&header, &rows, nobody.clone());
    assert_eq!(error, FollowError::NotSeen(nobody));
    assert!(error.to_string().starts_with("process 99 did not run"));
    let game = || Subject::Processes(vec![10]);
    let mut without = header.clone();
    without.coverage.attached.clear();
    assert_eq!(refuse(&without, &rows, game()), FollowError::NoWakeups);
    let proc = Header {
        level: Level::Proc,
        ..header.clone()
    };
    assert_eq!(refuse(&proc, &rows, game()), FollowError::Counters);
    let mut sums = rows.clone();
    sums.push(Row::Sum(Sum {
        span: *rows[0].span(),
        count: 1,
        max: Nanos(1),
        histogram: Histogram::default(),
    }));
    assert_eq!(refuse(&header, &sums, game()), FollowError::Sums);
}

#[test]
fn a_recording_of_another_program_does_not_show_the_subjects_end_or_quota() {
    let world = Fixture::run(&[
        Event::Switch(5 * MS, 0, 4, 1),
        Event::Switch(5 * MS, 0, 6, 1),
    ]);
    let mut header = world.header.clone();
    header.ended_early = Some(EndedEarly::ProgramExited);
    header.coverage.attached.push(Hook::SchedWaking);
    let analyse = |pid| {
        let subject = Subject::Processes(vec![pid]);
        follow(&world.rows, &header, &world.sources, subject).unwrap()
    };
    let same = analyse(10);
    assert_eq!(same.header(), &header);
    assert_eq!(rows_of(&same, &world.rows), world.rows);
    let stranger = analyse(99);
    assert_eq!(stranger.header().ended_early, None);
    let kinds = rows_of(&stranger, &world.rows).into_iter().map(|row| {
        let source = stranger.sources().get(row.source());
        (source.kind, source.thread.as_ref().map(|thread| thread.pid))
    });
    let waits: Vec<_> = kinds.filter(|(kind, _)| *kind == Kind::Wait).collect();
    assert!(waits.iter().all(|(_, pid)| *pid == Some(99)), "{waits:?}");
}

#[test]
fn the_quota_of_the_subjects_own_cgroup_is_reported() {
    let (rows, mut header, sources) = game();
    let pids = |pids: &[i32]| pids.iter().copied().collect::<BTreeSet<i32>>();
    header.cgroups = Some(
        [
            ("/games/a".to_owned(), pids(&[10])),
            ("/builds".to_owned(), pids(&[20])),
        ]
        .into(),
    );
    let quota = |cgroup: &str, throttled: u64| Throttling {
        cgroup: format!("/sys/fs/cgroup/cpu{cgroup}"),
        periods: 100 + throttled,
        throttled,
        quota: Some(Nanos(40 * MS)),
        ..Throttling::default()
    };
    header.before.quotas = vec![quota("/builds", 5), quota("/games/a", 2)];
    header.after.quotas = vec![quota("/builds", 50), quota("/games/a", 9)];
    let throttled = |header: &Header| {
        let followed = follow(&rows, header, &sources, Subject::Processes(vec![10]));
        let victim = statement(&followed.unwrap(), &rows).victim.unwrap();
        victim.throttling.map(|quota| quota.throttled)
    };
    assert_eq!(throttled(&header), Some(7));
    // The process was in two cgroups, so it is unknown which quota applied.
    let mut moved = header.clone();
    moved
        .cgroups
        .as_mut()
        .unwrap()
        .insert("/other".to_owned(), pids(&[10]));
    assert_eq!(throttled(&moved), None);
    header.after.quotas.truncate(1);
    assert_eq!(throttled(&header), None);
}

#[test]
fn a_process_that_executes_another_program_has_the_new_name() {
    let mut sources = SourceTable::default();
    let shell = sources.intern(process(Owner::Program, "sh", 10));
    let game = sources.intern(process(Owner::Program, "game", 10));
    // Rows from different CPUs can arrive in any order.
    let rows = [
        whole(1, 20 * MS, 5 * MS, game),
        whole(0, 0, 5 * MS, shell),
        whole(0, 5 * MS, 15 * MS, game),
    ];
    let mut header = machine(&ticktax_fixture::header());
    header.cpus = vec![books(0, 0, 20 * MS), books(1, 0, 25 * MS)];
    let followed = follow(&rows, &header, &sources, Subject::Processes(vec![10])).unwrap();
    assert_eq!(followed.header().victim.as_ref().unwrap().name, "game");
}
