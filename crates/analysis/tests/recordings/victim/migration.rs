//! Tests a thread that waits on one CPU and then runs on another.

use ticktax_analysis::Auditor;
use ticktax_fixture::{off_cpu, replay, row, thread};
use ticktax_model::recording::Row;
use ticktax_model::victim::{MOVED, OffCpuReason, Target, ThreadTimes};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

use crate::victim::fixture::followed;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_000 * MS;

/// Order in which the two CPUs' rows arrive.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Cpu0First,
    Cpu1First,
    /// The compiler's row arrives when the compiler leaves its CPU. That is long after the wait,
    /// and after a row for an interrupt on that CPU.
    CompilerLast,
}

/// Audits a thread that `compiler` preempts on CPU 0 for 20 ms. The thread then runs on CPU 1,
/// which was idle for the first 15 of those 20 ms and ran `other` for the rest.
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
    let make = |cpu, from: i64, to: i64, source| {
        row(cpu, at(from), (to - from) * MS, (to - from) * MS, source)
    };
    let cpu_0: Vec<Row> = vec![
        make(0, 0, 5, sleeping),
        make(0, 0, 5, idle),
        make(0, 5, 10, game),
        make(0, 10, 300, compiler),
    ];
    let cpu_1: Vec<Row> = vec![
        make(1, 0, 25, idle),
        make(1, 25, 30, other),
        make(1, 10, 30, waits),
        make(1, 30, 400, game),
    ];
    let rows: Vec<Row> = match order {
        Order::Cpu0First => cpu_0.into_iter().chain(cpu_1).collect(),
        Order::Cpu1First => cpu_1.into_iter().chain(cpu_0).collect(),
        Order::CompilerLast => {
            let mut rows = cpu_0;
            let _ = rows.pop();
            rows.extend(cpu_1);
            rows.push(make(0, 410, 411, tick));
            rows.push(make(0, 10, 600, compiler));
            rows
        }
    };
    let header = followed(Target::Process, "game", Some(10), BEGIN);
    let mut auditor = Auditor::books().following(Nanos(BEGIN - 1), None);
    replay(&sources, &rows, &mut auditor);
    let victim = auditor.finish(&header, &sources, 1).victim.unwrap();
    victim.threads.unwrap()
}

#[test]
fn the_wait_is_behind_what_ran_on_the_cpu_where_it_began() {
    for order in [Order::Cpu0First, Order::CompilerLast] {
        waited_behind_both(&audit(order));
    }
}

fn waited_behind_both(threads: &ThreadTimes) {
    assert!(threads.balances());
    let behind: Vec<(&str, i64)> = threads
        .behind
        .iter()
        .map(|interferer| (&*interferer.name, interferer.time.0 / MS))
        .collect();
    assert_eq!(behind, [("compiler", 15), ("other", 5)]);
    assert_eq!(threads.waited_on.to_string(), "0-1");
    let delay = &threads.delays[0];
    assert_eq!((delay.cpu, delay.waited_on), (Cpu(1), Some(Cpu(0))));
    let lost: Vec<&str> = delay.ran.iter().map(|lost| &*lost.name).collect();
    assert_eq!(lost, ["compiler", "other"]);
}

/// The analysis does not wait for a row that is more than 200 ms late, so it does not know where
/// the thread ran before.
#[test]
fn an_unknown_previous_cpu_is_not_guessed() {
    let threads = audit(Order::Cpu1First);
    assert!(threads.balances());
    assert_eq!(threads.delays[0].waited_on, None);
}
