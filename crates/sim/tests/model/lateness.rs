//! How late tasks run, told by hand.

use ticktax_model::{Histogram, Nanos};
use ticktax_sim::{Call, Law, Machine, Policy, Setup, Step, TaskSpec, TimerRule, run};

/// A task that sleeps for 5 ms at 100 Hz, and works for 1 µs.
fn sleeper(timers: TimerRule) -> Setup {
    let mut machine = Machine::new(1, 100, Policy::Fair);
    machine.timers = timers;
    let mut setup = Setup::new(machine, Nanos::from_secs(1));
    let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos::from_millis(5)));
    let work = Step::Work(Law::Fixed(Nanos(1_000)));
    setup
        .tasks
        .push(TaskSpec::new("sleeper", vec![sleep, work]));
    setup
}

#[test]
fn a_sleep_that_ends_at_ticks_is_late_by_what_is_left_of_one() {
    let report = run(&sleeper(TimerRule::FirstTick)).unwrap();
    // It falls asleep 1 µs after a tick, the first time at the start itself, and each sleep ends at
    // the next tick. The one that would end at 1 s is no longer part of it.
    let (first, others) = (Nanos::from_millis(5), Nanos(4_999_000));
    assert_eq!(report.tasks[0].worst_lateness, first);
    let mut counts = vec![0; Histogram::BUCKETS];
    counts[Histogram::bucket(Nanos::ZERO)] = 1;
    counts[Histogram::bucket(first)] += 1;
    counts[Histogram::bucket(others)] += 98;
    assert_eq!(report.lateness[0].counts(), counts);
}

#[test]
fn a_sleep_that_ends_by_itself_is_on_time_until_somebody_has_the_cpu() {
    let mut setup = sleeper(TimerRule::HighResolution);
    let report = run(&setup).unwrap();
    assert_eq!(report.tasks[0].worst_lateness, Nanos::ZERO);
    assert_eq!(report.lateness[0].quantile(1.0), Some(Nanos::ZERO));
    // A real-time task that works from 4 to 7 ms once, over the first end of the sleep.
    let mut other = TaskSpec::new(
        "other",
        vec![Step::Work(Law::Fixed(Nanos::from_millis(3))), Step::Exit],
    );
    other.start = Nanos::from_millis(4);
    setup.tasks.push(other.class(ticktax_sim::Class::Fifo(1)));
    let report = run(&setup).unwrap();
    assert_eq!(report.tasks[0].worst_lateness, Nanos::from_millis(2));
}
