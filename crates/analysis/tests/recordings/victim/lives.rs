//! Tests the accounts of threads that end in the middle of a state, exec another program, or change
//! their name, and of a very large number of threads.

use std::collections::BTreeMap;

use ticktax_analysis::Auditor;
use ticktax_fixture::{books, off_cpu, process, replay, thread, whole};
use ticktax_model::kernel_words::TaskDetail;
use ticktax_model::recording::Row;
use ticktax_model::victim::{OffCpuReason, Target, ThreadState, ThreadTimes};
use ticktax_model::{Nanos, Owner, Source, SourceTable};

use super::fixture::followed;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_000 * MS;
const PID: i32 = 10;

/// Returns the times of the program's threads, whose accounts must add up.
fn threads(rows: &[Row], sources: &SourceTable) -> ThreadTimes {
    let mut header = followed(Target::Process, "game", Some(PID), BEGIN);
    header.cpus = vec![books(0, BEGIN, BEGIN + 10_000 * MS)];
    let mut auditor = Auditor::books().following(Nanos(BEGIN - 1), None);
    replay(sources, rows, &mut auditor);
    let victim = auditor.finish(&header, sources, 1).victim.unwrap();
    let threads = victim.threads.unwrap();
    assert!(threads.balances(), "{:?}", threads.imbalances);
    assert_eq!(threads.accounted, threads.elapsed);
    threads
}

/// Returns the time in each state, in ms.
fn times(threads: &ThreadTimes) -> BTreeMap<ThreadState, i64> {
    let accounts = threads.accounts.iter();
    let accounts = accounts.filter(|account| account.time > Nanos::ZERO);
    accounts
        .map(|account| (account.state, account.time.0 / MS))
        .collect()
}

/// Creates a row from `from` to `to`, in ms after the start.
fn at(from: i64, to: i64, source: Source, sources: &mut SourceTable) -> Row {
    whole(
        0,
        BEGIN + from * MS,
        (to - from) * MS,
        sources.intern(source),
    )
}

fn own(name: &str, tid: i32) -> Source {
    thread(Owner::Program, name, "game", (PID, tid))
}

#[test]
fn a_thread_that_ends_in_any_off_cpu_state_is_accounted_for_until_then() {
    let reasons = OffCpuReason::ALL.into_iter();
    for reason in reasons.filter(|reason| reason.is_time()) {
        let mut sources = SourceTable::default();
        let away = off_cpu(own("helper", 11), reason.name());
        let rows = [
            at(0, 2, own("game", PID), &mut sources),
            at(2, 5, own("helper", 11), &mut sources),
            at(5, 9, away, &mut sources),
        ];
        let threads = threads(&rows, &sources);
        let mut expected = BTreeMap::from([(ThreadState::Running, 5)]);
        *expected.entry(reason.into()).or_default() += 4;
        assert_eq!(times(&threads), expected, "{reason:?}");
        assert_eq!(threads.elapsed, Nanos(9 * MS), "{reason:?}");
    }
}

#[test]
fn a_thread_that_ends_in_the_kernel_is_accounted_for_until_then() {
    for (detail, state) in [
        (TaskDetail::PageFault.name(), ThreadState::PageFault),
        (TaskDetail::Reclaim.name(), ThreadState::Reclaim),
        ("in read", ThreadState::SystemCall),
    ] {
        let mut sources = SourceTable::default();
        let within = Source {
            detail: detail.into(),
            ..own("game", PID)
        };
        let rows = [
            at(0, 3, own("game", PID), &mut sources),
            at(3, 7, within, &mut sources),
        ];
        let expected = BTreeMap::from([(ThreadState::Running, 3), (state, 4)]);
        assert_eq!(times(&threads(&rows, &sources)), expected, "{detail}");
    }
}

/// A helper thread execs another program. The main thread, which was asleep, ends to make way, and
/// the helper takes over its ID. For 2 ms, no thread has this ID.
#[test]
fn a_thread_that_executes_a_program_takes_over_the_id_without_a_guess() {
    let mut sources = SourceTable::default();
    let asleep = |tid| off_cpu(own("game", tid), "sleeping");
    let marker = off_cpu(process(Owner::Program, "tool", PID), "reborn");
    let rows = [
        at(0, 5, own("game", PID), &mut sources),
        at(5, 15, own("helper", 11), &mut sources),
        at(5, 15, asleep(PID), &mut sources),
        // The main thread exits.
        at(15, 16, own("game", PID), &mut sources),
        at(15, 18, asleep(11), &mut sources),
        at(20, 20, marker, &mut sources),
        at(18, 25, process(Owner::Program, "tool", PID), &mut sources),
    ];
    let threads = threads(&rows, &sources);
    let expected = BTreeMap::from([
        (ThreadState::Running, 5 + 10 + 1 + 7),
        (ThreadState::Sleeping, 10 + 3),
        (ThreadState::Unseen, 2),
    ]);
    assert_eq!(times(&threads), expected);
    assert_eq!((threads.threads, threads.processes), (2, 1));
    // The thread is named after the program that it exec'd.
    assert_eq!(threads.busiest[0].tid, PID);
    assert_eq!(threads.busiest[0].name, "tool");
}

#[test]
fn a_thread_that_is_renamed_stays_one_thread() {
    let mut sources = SourceTable::default();
    let rows = [
        at(0, 4, own("worker", 11), &mut sources),
        at(4, 6, off_cpu(own("worker", 11), "sleeping"), &mut sources),
        at(6, 9, own("render", 11), &mut sources),
        at(9, 10, off_cpu(own("render", 11), "disk"), &mut sources),
        at(10, 11, own("render", 11), &mut sources),
    ];
    let threads = threads(&rows, &sources);
    let expected = BTreeMap::from([
        (ThreadState::Running, 8),
        (ThreadState::Sleeping, 2),
        (ThreadState::Disk, 1),
    ]);
    assert_eq!(times(&threads), expected);
    assert_eq!(threads.threads, 1);
    let busiest = threads
        .busiest
        .first()
        .map(|thread| (&*thread.name, thread.time));
    assert_eq!(busiest, Some(("render", Nanos(8 * MS))));
}

#[test]
fn ten_thousand_threads_are_accounted_for_exactly() {
    const COUNT: i32 = 10_000;
    let mut sources = SourceTable::default();
    let mut rows = Vec::new();
    for nth in 0..COUNT {
        let (start, tid) = (BEGIN + i64::from(nth) * 1_000, PID + nth);
        let runs = sources.intern(own("worker", tid));
        let waits = sources.intern(off_cpu(own("worker", tid), "sleeping"));
        rows.push(whole(0, start, 600, runs));
        // Each thread sleeps for a different length of time.
        rows.push(whole(0, start + 600, i64::from(nth), waits));
    }
    let threads = threads(&rows, &sources);
    let slept: i64 = (0..i64::from(COUNT)).sum();
    assert_eq!(threads.threads, 10_000);
    assert_eq!(threads.elapsed, Nanos(i64::from(COUNT) * 600 + slept));
    let asleep = threads.accounts.iter();
    let mut asleep = asleep.filter(|account| account.state == ThreadState::Sleeping);
    assert_eq!(
        asleep.next().map(|account| account.time),
        Some(Nanos(slept))
    );
    assert_eq!(threads.busiest.len(), 5);
}
