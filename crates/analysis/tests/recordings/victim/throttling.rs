//! Tests a thread that uses up its CPU quota.

use ticktax_analysis::Auditor;
use ticktax_fixture::{replay, row, thread};
use ticktax_model::recording::Row;
use ticktax_model::victim::{DelayKind, OffCpuReason, Target, ThreadState, ThreadTimes};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};

use crate::victim::fixture::followed;

const MS: i64 = 1_000_000;

/// Audits thread 11 in process 10. It uses 20 ms of CPU time in every 100 ms, never sleeps, and has
/// wait rows only for throttling. Each time its throttling ends, it waits on the run queue for 5 ms
/// behind another program. The quota's timer fires on the second CPU, whose rows arrive last.
fn audit(target: Target, pid: Option<i32>) -> Option<ThreadTimes> {
    let mut sources = SourceTable::default();
    let program = |name: &str, pid| thread(Owner::Program, name, name, (pid, pid + 1));
    let game = sources.intern(program("game", 10));
    let other = sources.intern(program("other", 20));
    let held = sources.intern(Source {
        kind: Kind::Wait,
        detail: OffCpuReason::Throttled.name().into(),
        ..program("game", 10)
    });
    let idle = sources.intern(Source::idle());
    let name = "local_timer";
    let timer = sources.intern(Source::kernel(Kind::Irq, name, "sched_cfs_period_timer"));
    let begin = 1_000 * MS;
    let (mut rows, mut timers): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
    for period in 0..5 {
        let at = begin + period * 100 * MS;
        rows.push(row(0, at, 20 * MS, 20 * MS, game));
        rows.push(row(0, at + 20 * MS, 75 * MS, 75 * MS, idle));
        rows.push(row(0, at + 95 * MS, 5 * MS, 5 * MS, other));
        rows.push(row(0, at + 20 * MS, 80 * MS, 80 * MS, held));
        timers.push(row(1, at + 95 * MS - 3_000, 3_000, 3_000, timer));
    }
    rows.extend(timers);
    let header = followed(target, "game", pid, begin);
    let mut auditor = Auditor::books().following(Nanos(begin - 1), None);
    replay(&sources, &rows, &mut auditor);
    auditor.finish(&header, &sources, 1).victim?.threads
}

#[test]
fn throttling_is_among_the_delays_and_ends_with_the_timer() {
    let threads = audit(Target::Process, Some(10)).unwrap();
    assert!(threads.balances(), "{:?}", threads.imbalances);
    let state = |state| {
        let account = threads
            .accounts
            .iter()
            .find(|account| account.state == state);
        account.map(|account| (account.time, account.count))
    };
    assert_eq!(state(ThreadState::Throttled), Some((Nanos(5 * 75 * MS), 5)));
    assert_eq!(state(ThreadState::Waiting), Some((Nanos(5 * 5 * MS), 5)));
    let longest = &threads.delays[0];
    assert_eq!(longest.kind, DelayKind::Throttled);
    assert_eq!(longest.length, Nanos(75 * MS));
    assert!(longest.ran.is_empty(), "{longest:?}");
    let waits = threads.delays.iter();
    let waits: Vec<_> = waits
        .filter(|delay| delay.kind == DelayKind::Unthrottled)
        .collect();
    assert_eq!(waits.len(), 5);
    assert_eq!(waits[0].length, Nanos(5 * MS));
    assert_eq!(waits[0].ran[0].name, "other");
}

#[test]
fn a_thread_known_only_from_throttling_is_not_attributed_to_a_group() {
    let threads = audit(Target::Cgroup("/game".to_owned()), None).unwrap();
    assert_eq!(threads.threads, 0);
}

/// Two threads in a process share a quota on one CPU. Thread 12 uses it up while thread 11 waits
/// behind it, and the CPU is idle until the refill. The tracer reports only thread 12 as throttled,
/// after thread 11 has already run.
#[test]
fn a_thread_that_waits_behind_a_throttled_sibling_is_throttled_too() {
    let mut sources = SourceTable::default();
    let program = |name: &str, tid| thread(Owner::Program, name, "relay", (10, tid));
    let wait = |name: &str, tid, reason: OffCpuReason| Source {
        kind: Kind::Wait,
        detail: reason.name().into(),
        ..program(name, tid)
    };
    let relay = sources.intern(program("relay", 11));
    let poller = sources.intern(program("poller", 12));
    let woken = sources.intern(wait("relay", 11, OffCpuReason::Woken));
    let asleep = sources.intern(wait("relay", 11, OffCpuReason::Sleeping));
    let held = sources.intern(wait("poller", 12, OffCpuReason::Throttled));
    let waiting = sources.intern(wait("poller", 12, OffCpuReason::Preempted));
    let idle = sources.intern(Source::idle());
    let begin = 1_000 * MS;
    let mut rows: Vec<Row> = Vec::new();
    for period in 0..5 {
        let at = begin + period * 100 * MS;
        let mut add = |from: i64, length: i64, own: i64, source| {
            rows.push(row(0, at + from * MS, length * MS, own * MS, source));
        };
        // Thread 11 is woken at 20 ms. The quota is used up at 30 ms and refilled at 80 ms.
        add(0, 20, 20, asleep);
        add(0, 30, 30, poller);
        add(30, 50, 50, idle);
        add(20, 60, 60, woken);
        add(80, 10, 10, relay);
        add(30, 50, 50, held);
        add(80, 10, 10, waiting);
        add(90, 10, 10, poller);
        add(90, 10, 10, asleep);
    }
    let header = followed(Target::Process, "relay", Some(10), begin);
    let mut auditor = Auditor::books().following(Nanos(begin - 1), None);
    replay(&sources, &rows, &mut auditor);
    let statement = auditor.finish(&header, &sources, 1);
    let threads = statement.victim.unwrap().threads.unwrap();
    assert!(threads.balances(), "{:?}", threads.imbalances);
    let time = |state| {
        let accounts = threads.accounts.iter();
        let times = accounts.filter(|account| account.state == state);
        times.map(|account| account.time.0 / MS).sum::<i64>()
    };
    // In each period, thread 12 also waits for 10 ms behind thread 11.
    assert_eq!(time(ThreadState::Throttled), 5 * (50 + 50));
    assert_eq!(time(ThreadState::Waiting), 5 * (10 + 10));
    let behind: Vec<(&str, i64)> = threads
        .behind
        .iter()
        .map(|culprit| (&*culprit.name, culprit.time.0 / MS))
        .collect();
    assert!(
        !behind.iter().any(|(name, _)| *name == "idle"),
        "{behind:?}"
    );
    let latency = threads.latency.unwrap();
    assert_eq!((latency.count, latency.lengths.max), (5, Nanos(10 * MS)));
}
