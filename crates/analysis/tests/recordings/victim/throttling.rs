//! Tests a thread that uses up its CPU quota.

use ticktax_analysis::Auditor;
use ticktax_fixture::{replay, row, thread};
use ticktax_model::recording::Row;
use ticktax_model::victim::{DelayKind, OffCpuReason, Target, ThreadState, ThreadTimes};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};

use crate::victim::fixture::followed;

const MS: i64 = 1_000_000;

/// Audits thread 11 of process 10. It uses 20 ms of CPU time in every 100 ms, never sleeps, and has
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
    let mut auditor = Auditor::books();
    auditor.victim_since(Nanos(begin - 1));
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
