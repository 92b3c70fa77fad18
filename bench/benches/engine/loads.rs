//! Loads for the benchmark that times the model.

use ticktax_model::Nanos;
use ticktax_sim::{Call, Costs, Law, Machine, Policy, Setup, Step, TaskSpec, TickMode, TimerRule};

const CPUS: usize = 64;

/// A load's name, and a function that creates the load for a number of simulated seconds.
type Load = (&'static str, fn(i64) -> Setup);

/// All loads. The model is designed to simulate loads as large as `hour`: 64 CPUs, each with a 1000
/// Hz tick and 200 wake-ups per second. `busy` is the same machine with two tasks per CPU that
/// always use up their time slices.
pub(crate) const LOADS: [Load; 4] = [
    ("hour", |secs| wakeups(secs, TimerRule::FirstTick)),
    ("hour-high-resolution", |secs| {
        wakeups(secs, TimerRule::HighResolution)
    }),
    ("busy-fair", |secs| busy(secs, Policy::Fair)),
    ("busy-o1", |secs| busy(secs, Policy::O1)),
];

pub(crate) fn load(name: &str, secs: i64) -> Option<Setup> {
    let found = LOADS.iter().find(|load| load.0 == name);
    found.map(|load| load.1(secs))
}

/// Creates a machine with one task per CPU, which wakes up 200 times per second and works for 50 µs
/// on average.
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
        // With `FirstTick`, a sleep ends half a tick (0.5 ms) late on average. Together with the
        // requested 4.45 ms and the 50 µs of work, that makes 5 ms per cycle, or 200 wake-ups per
        // second. High-resolution timers end a sleep on time, so the task must request a longer
        // sleep.
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

/// Creates a machine with two tasks per CPU, which never sleep.
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
