//! A thread that waits on one CPU and then runs on another.

use ticktax_analysis::Auditor;
use ticktax_fixture::{off_cpu, replay, row, thread};
use ticktax_model::recording::Row;
use ticktax_model::victim::{MOVED, OffCpuReason, Target, ThreadTimes};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

use crate::victim::fixture::followed;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_000 * MS;

/// In which order the rows of the two CPUs come.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Cpu0First,
    Cpu1First,
    /// The compiler's row comes when it leaves its CPU, long after the wait, and that of an
    /// interrupt of it before.
    CompilerLast,
}

/// The thread is preempted on CPU 0 by `compiler` for 20 ms, and runs on CPU 1 then, which idled
/// for the first 15 ms of that and ran `other` from then on.
fn audit(order: Order) -> ThreadTimes {
    let mut sources = SourceTable::default();
    let program = |name: &str, pid| thread(Owner::Program, name, name, (pid, pid));
    let game = sources.intern(program("game", 10));
    let compiler = sources.intern(program("compiler", 20));
    let other = sources.intern(program("other", 30));
    let idle = sources.intern(Source::idle());
    let tick = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let sleeping = sources.intern(off_cpu(program("game", 10), "sleeping"));
    let detail = format!("{}{MOVED}", OffCpuReason::Preempted.name());
    let waits = sources.intern(off_cpu(program("game", 10), &detail));
    let at = |ms: i64| BEGIN + ms * MS;
    let of = |cpu, from: i64, to: i64, source| {
        row(cpu, at(from), (to - from) * MS, (to - from) * MS, source)
    };
    let one: Vec<Row> = vec![
        of(0, 0, 5, sleeping),
        of(0, 0, 5, idle),
        of(0, 5, 10, game),
        of(0, 10, 300, compiler),
    ];
    let two: Vec<Row> = vec![
        of(1, 0, 25, idle),
        of(1, 25, 30, other),
        of(1, 10, 30, waits),
        of(1, 30, 400, game),
    ];
    let rows: Vec<Row> = match order {
        Order::Cpu0First => one.into_iter().chain(two).collect(),
        Order::Cpu1First => two.into_iter().chain(one).collect(),
        Order::CompilerLast => {
            let mut rows = one;
            let _ = rows.pop();
            rows.extend(two);
            rows.push(of(0, 410, 411, tick));
            rows.push(of(0, 10, 600, compiler));
            rows
        }
    };
    let header = followed(Target::Process, "game", Some(10), BEGIN);
    let mut auditor = Auditor::books();
    auditor.victim_since(Nanos(BEGIN - 1));
    replay(&sources, &rows, &mut auditor);
    let victim = auditor.finish(&header, &sources, 1).victim.unwrap();
    victim.threads.unwrap()
}

#[test]
fn who_ran_where_it_waited_is_who_it_waited_behind() {
    for order in [Order::Cpu0First, Order::CompilerLast] {
        waited_behind_both(&audit(order));
    }
}

fn waited_behind_both(threads: &ThreadTimes) {
    assert!(threads.balances());
    let behind: Vec<(&str, i64)> = threads
        .behind
        .iter()
        .map(|one| (&*one.name, one.time.0 / MS))
        .collect();
    assert_eq!(behind, [("compiler", 15), ("other", 5)]);
    assert_eq!(threads.waited_on.to_string(), "0-1");
    let delay = &threads.delays[0];
    assert_eq!((delay.cpu, delay.waited_on), (Cpu(1), Some(Cpu(0))));
    let lost: Vec<&str> = delay.lost_to.iter().map(|lost| &*lost.name).collect();
    assert_eq!(lost, ["compiler", "other"]);
}

/// A row that comes more than 200 ms late is not waited for, and nothing is claimed of where the
/// thread ran before.
#[test]
fn where_it_ran_before_is_not_guessed() {
    let threads = audit(Order::Cpu1First);
    assert!(threads.balances());
    assert_eq!(threads.delays[0].waited_on, None);
}
