//! Compares the two ways in which the model accounts for CPU time: by sampling at ticks, and
//! exactly.

use proptest::prelude::*;
use ticktax_model::Nanos;
use ticktax_sim::{Call, Law, Machine, Setup, Step, TaskSpec, TickMode, TimerRule, run};

use crate::fixture::policy;

fn fixed(nanos: i64) -> Law {
    Law::Fixed(Nanos(nanos))
}

proptest! {
    /// A work step that starts right after a tick must be charged for each tick that occurs during
    /// the step, for every length of the step.
    #[test]
    fn bursts_from_the_tick_are_charged_in_whole_ticks(
        work in 1_i64..60_000_000, policy in policy(), hz in prop::sample::select(&[100_u64, 250, 1000][..])
    ) {
        let mut setup = Setup::new(Machine::new(1, hz, policy), Nanos::from_secs(20));
        let sleep = Step::Sleep(Call::Nanosleep, fixed(1));
        setup.tasks.push(TaskSpec::new("aligned", vec![sleep, Step::Work(fixed(work))]));
        let report = run(&setup).unwrap();
        let tick = 1_000_000_000 / i64::try_from(hz).unwrap();
        let each = u64::try_from(work / tick).unwrap();
        let task = report.tasks[0];
        // The end of the simulation may cut off the last work step.
        prop_assert!(task.sampled >= each * task.bursts);
        prop_assert!(task.sampled <= each * (task.bursts + 1));
    }

    #[test]
    fn bursts_at_uniform_phase_are_charged_without_bias(
        work in 100_000_i64..30_000_000, seed in any::<u64>(), policy in policy(),
        stops in any::<bool>()
    ) {
        let mut machine = Machine::new(1, 100, policy);
        machine.timers = TimerRule::HighResolution;
        machine.tick = if stops { TickMode::NohzIdle } else { TickMode::Periodic };
        let mut setup = Setup::new(machine, Nanos::from_secs(600));
        setup.seed = seed;
        let sleep = Step::Sleep(Call::Nanosleep, Law::Uniform(Nanos(0), Nanos(20_000_000)));
        setup.tasks.push(TaskSpec::new("random", vec![sleep, Step::Work(fixed(work))]));
        let task = run(&setup).unwrap().tasks[0];
        let sampled = task.sampled as f64 * 10e6;
        let ran = task.ran.0 as f64;
        // Each work step is charged at most one tick too many or too few, so its error has a
        // standard deviation of at most half a tick. Allow five standard deviations of the summed
        // errors.
        let margin = 5.0 * (task.bursts as f64 / 4.0).sqrt() * 10e6;
        prop_assert!((sampled - ran).abs() < margin, "{sampled} for {ran}, off by {margin} at most");
    }

    /// If the kernel's own work costs nothing, a task that is alone on its CPU must behave
    /// identically at every tick rate, to the nanosecond.
    #[test]
    fn without_costs_the_tick_rate_does_not_affect_a_lone_task(
        work in 1_i64..20_000_000, seed in any::<u64>(), policy in policy()
    ) {
        let done = |hz| {
            let mut machine = Machine::new(1, hz, policy);
            machine.timers = TimerRule::HighResolution;
            let mut setup = Setup::new(machine, Nanos::from_secs(5));
            setup.seed = seed;
            let sleep = Step::Sleep(Call::Nanosleep, Law::Exponential(Nanos(5_000_000)));
            let program = vec![sleep, Step::Work(Law::Exponential(Nanos(work)))];
            setup.tasks.push(TaskSpec::new("lone", program));
            let task = run(&setup).unwrap().tasks[0];
            (task.ran, task.bursts, task.sleeps)
        };
        prop_assert_eq!(done(100), done(1000));
        prop_assert_eq!(done(100), done(250));
    }

    #[test]
    fn without_costs_the_tick_rate_does_not_affect_the_work_done(
        work in prop::collection::vec(1_i64..20_000_000, 1..5), seed in any::<u64>()
    ) {
        let done = |hz| {
            let eevdf = ticktax_sim::Policy::Eevdf { slice: Nanos(3_000_000), hrtick: true };
            let mut machine = Machine::new(2, hz, eevdf);
            machine.timers = TimerRule::HighResolution;
            let mut setup = Setup::new(machine, Nanos::from_secs(10));
            setup.seed = seed;
            for &work in &work {
                let sleep = Step::Sleep(Call::Nanosleep, Law::Exponential(Nanos(5_000_000)));
                let program = vec![sleep, Step::Work(Law::Exponential(Nanos(work)))];
                setup.tasks.push(TaskSpec::new("worker", program).on(0));
            }
            let report = run(&setup).unwrap();
            report.tasks.iter().map(|task| task.ran).sum::<Nanos>()
        };
        // At different tick rates, slices end at different times. This may change the order in
        // which tasks run, and thus slightly change the idle time.
        let times = [100, 250, 1000].map(done);
        let max = times.iter().max().unwrap().0;
        let min = times.iter().min().unwrap().0;
        prop_assert!((max - min) as f64 <= 0.02 * max as f64, "{times:?}");
    }
}
