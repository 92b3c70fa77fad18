//! How fast the model is, on one thread: `cargo bench -p ticktax-sim`.
//!
//! `hour` is the size that it is made for: 64 CPUs that tick at 1000 Hz and wake up 200 times a
//! second each, for an hour. `busy` is the same machine with two tasks to a CPU that use up their
//! slices. A rate counts events that are simulated one by one; ticks that change nothing are told
//! beside it. `--short` makes each a hundredth as long, for counting instructions under callgrind.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark times itself, and records nothing"
)]
#![allow(
    clippy::print_stdout,
    reason = "a benchmark's result goes to the terminal"
)]

use std::time::Instant;

use ticktax_model::Nanos;
use ticktax_model::recording::{Row, RowSink};
use ticktax_sim::{Call, Costs, Law, Machine, Policy, Setup, Step, TaskSpec, TickMode, TimerRule};

const CPUS: usize = 64;

/// Takes rows, and only counts them.
#[derive(Default)]
struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &ticktax_model::SourceTable, _: &Row) {
        self.0 += 1;
    }
}

fn main() {
    let short = std::env::args().any(|argument| argument == "--short");
    let chosen = |name: &str| {
        let names: Vec<String> = std::env::args()
            .skip(1)
            .filter(|argument| !argument.starts_with('-'))
            .collect();
        names.is_empty() || names.iter().any(|chosen| chosen == name)
    };
    let secs = if short { 36 } else { 3600 };
    for (name, setup) in [
        ("hour", wakeups(secs, TimerRule::FirstTick)),
        (
            "hour, high resolution",
            wakeups(secs, TimerRule::HighResolution),
        ),
        ("busy, CFS", busy(secs / 36, Policy::Fair)),
        ("busy, O(1)", busy(secs / 36, Policy::O1)),
    ] {
        if chosen(name) {
            time(name, &setup);
        }
    }
    if chosen("recorded") {
        let setup = wakeups(secs / 36, TimerRule::FirstTick);
        let begin = Instant::now();
        let mut count = Count::default();
        let report = ticktax_sim::record(&setup, &mut count);
        let passed = begin.elapsed().as_secs_f64();
        assert!(report.is_ok());
        let rows = count.0 as f64 / 1e6;
        println!(
            "recorded: {rows:.1} M rows in {passed:.2} s, {:.1} M/s",
            rows / passed
        );
    }
    // It is the same for an hour as for a hundredth of one.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("peak memory: {}", peak.trim());
    }
}

fn time(name: &str, setup: &Setup) {
    let begin = Instant::now();
    let report = ticktax_sim::run(setup).unwrap_or_else(|error| panic!("{error}"));
    let passed = begin.elapsed().as_secs_f64();
    let millions = |count: u64| count as f64 / 1e6;
    println!(
        "{name}: {:.0} simulated s in {passed:.2} s; {:.3} M wake-ups, {:.3} M events, {:.2} M/s; \
         {:.3} M ticks; hash {:016x}",
        setup.length.as_secs_f64(),
        millions(report.tasks.iter().map(|task| task.sleeps).sum()),
        millions(report.events),
        millions(report.events) / passed,
        millions(report.ticks),
        report.hash,
    );
}

/// A task on each CPU that wakes up 200 times a second, to work for 50 µs on average.
fn wakeups(secs: i64, rule: TimerRule) -> Setup {
    let mut machine = Machine::new(CPUS, 1000, Policy::Fair);
    machine.timers = rule;
    machine.tick = TickMode::Periodic;
    machine.costs = Costs {
        tick: Nanos(2_000),
        timer: Nanos(1_500),
        switch: Nanos(1_000),
    };
    let mut setup = Setup::new(machine, Nanos::from_secs(secs));
    for cpu in 0..CPUS {
        // A sleep ends half a tick late on average, with the work that is 4.55 ms.
        let more = if rule == TimerRule::FirstTick {
            0
        } else {
            500_000
        };
        let sleep = Step::Sleep(Call::Nanosleep, Law::Exponential(Nanos(4_450_000 + more)));
        let work = Step::Work(Law::Exponential(Nanos(50_000)));
        setup
            .tasks
            .push(TaskSpec::new("task", vec![sleep, work]).on(cpu));
    }
    setup
}

/// Two tasks on each CPU that never sleep.
fn busy(secs: i64, policy: Policy) -> Setup {
    let mut machine = Machine::new(CPUS, 1000, policy);
    machine.costs.tick = Nanos(2_000);
    let mut setup = Setup::new(machine, Nanos::from_secs(secs));
    for cpu in 0..2 * CPUS {
        let program = vec![Step::Work(Law::Exponential(Nanos::from_millis(20)))];
        setup
            .tasks
            .push(TaskSpec::new("hog", program).on(cpu % CPUS));
    }
    setup
}
