//! Compares the lateness of tasks with values calculated by hand.

use proptest::prelude::*;
use ticktax_model::{Histogram, Nanos};
use ticktax_sim::{
    Call, Law, Machine, Policy, Setup, Step, TaskId, TaskSpec, TickMode, TimerRule, run,
};

/// Simulates a task on a 100 Hz machine that repeatedly sleeps for 5 ms and works for 1 µs.
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
fn a_sleep_that_ends_at_a_tick_is_late_by_the_rest_of_it() {
    let report = run(&sleeper(TimerRule::FirstTick)).unwrap();
    // The first sleep starts at time 0, and all later ones 1 µs after a tick. Each sleep ends at
    // the next tick. The simulation stops just before 1 s, when another sleep would end.
    let (first, others) = (Nanos::from_millis(5), Nanos(4_999_000));
    assert_eq!(report.tasks[0].worst_lateness, first);
    let mut counts = vec![0; Histogram::BUCKETS];
    counts[Histogram::bucket(Nanos::ZERO)] = 1;
    counts[Histogram::bucket(first)] += 1;
    counts[Histogram::bucket(others)] += 98;
    assert_eq!(report.lateness[0].counts(), counts);
}

#[test]
fn a_high_resolution_sleep_is_only_late_if_the_cpu_is_busy() {
    let mut setup = sleeper(TimerRule::HighResolution);
    let report = run(&setup).unwrap();
    assert_eq!(report.tasks[0].worst_lateness, Nanos::ZERO);
    assert_eq!(report.lateness[0].quantile(1.0), Some(Nanos::ZERO));
    // A real-time task runs from 4 ms to 7 ms. The first sleep ends at 5 ms, so the sleeper has to
    // wait for 2 ms.
    let mut other = TaskSpec::new(
        "other",
        vec![Step::Work(Law::Fixed(Nanos::from_millis(3))), Step::Exit],
    );
    other.start = Nanos::from_millis(4);
    setup.tasks.push(other.class(ticktax_sim::Class::Fifo(1)));
    let report = run(&setup).unwrap();
    assert_eq!(report.tasks[0].worst_lateness, Nanos::from_millis(2));
}

/// Creates a loop with timer slack `slack` whose frames are due at multiples of `period`.
fn slack_loop(hz: i64, phase: i64, tick: TickMode, slack: i64, period: i64) -> Setup {
    let mut machine = Machine::new(1, hz.unsigned_abs(), Policy::Fair);
    machine.timers = TimerRule::HighResolution;
    machine.tick = tick;
    machine.phases = vec![Nanos(phase)];
    machine.slack = Nanos(slack);
    let mut setup = Setup::new(machine, Nanos::from_secs(2));
    let sleep = Step::SleepUntil(Call::Nanosleep, Nanos(period));
    let work = Step::Work(Law::Fixed(Nanos(1_000)));
    let program = vec![sleep, Step::Frame, work];
    setup.tasks.push(TaskSpec::new("loop", program));
    setup
}

proptest! {
    /// A sleep must end at the first tick within its slack. If the slack contains no tick, or if
    /// the tick is stopped, the sleep must end with its slack. Without high-resolution timers, it
    /// must end at the first tick after its deadline, or at the first tick after its slack if the
    /// tick is stopped.
    #[test]
    fn a_tick_within_the_slack_ends_a_sleep(
        hz in prop::sample::select(&[100_i64, 250, 500, 1000][..]), phase in 0_i64..900_000,
        slack in 1_i64..900_000, period in 4_000_000_i64..20_000_000, stops in any::<bool>(),
        fine in any::<bool>()
    ) {
        let mode = if stops { TickMode::NohzIdle } else { TickMode::Periodic };
        let mut setup = slack_loop(hz, phase, mode, slack, period);
        if !fine {
            setup.machine.timers = TimerRule::FirstTick;
        }
        let (_, frames) = ticktax_sim::frames(&setup, TaskId(0)).unwrap();
        prop_assert!(frames.len() > 50);
        let tick = 1_000_000_000 / hz;
        for frame in &frames {
            let due = frame.due.0;
            let next = |at: i64| phase + (at - phase + tick - 1).div_euclid(tick) * tick;
            let latest = due + slack;
            let ends = match (fine, stops) {
                (true, true) => latest,
                (true, false) => next(due).min(latest),
                (false, true) => next(latest),
                (false, false) => next(due),
            };
            prop_assert!((frame.began.0 - ends).abs() <= 1, "{frame:?}: {ends}");
        }
    }
}

#[test]
fn another_tasks_timer_ends_a_sleep_within_its_slack() {
    let mut setup = slack_loop(100, 0, TickMode::NohzIdle, 50_000, 7_000_000);
    // Including its own slack, this task's sleep ends 30 µs after the slack of the loop's sleep has
    // begun.
    let mut other = TaskSpec::new(
        "other",
        vec![
            Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos(6_980_000))),
            Step::Exit,
        ],
    );
    other.kernel = true;
    setup.tasks.push(other);
    let (_, frames) = ticktax_sim::frames(&setup, TaskId(0)).unwrap();
    let late = |frame: usize| (frames[frame].began - frames[frame].due).0;
    assert_eq!((late(0), late(1)), (30_000, 50_000));
}
