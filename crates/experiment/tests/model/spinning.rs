//! Tests tasks that spin until a given time. They must never start a frame early, must be
//! preemptible, and must have the same frame times as tasks that sleep.

use proptest::prelude::*;
use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule};
use ticktax_sim::{
    Call, Class, Costs, Footprint, Law, Machine, Mode, Policy, Report, Setup, Step, TaskId,
    TaskSpec, TickMode, TimerRule, run,
};

use crate::fixture::policy;

const MS: i64 = 1_000_000;

struct Simulated {
    report: Report,
    frames: Vec<Frame>,
}

fn followed(setup: &Setup) -> Simulated {
    let simulated = ticktax_sim::frames(setup, TaskId(0));
    let (followed, frames) = simulated.unwrap_or_else(|error| panic!("{error}"));
    Simulated {
        report: followed.report,
        frames,
    }
}

fn work(nanos: i64) -> Step {
    Step::Work(Law::Fixed(Nanos(nanos)))
}

fn rules() -> impl Strategy<Value = PaceRule> {
    prop::sample::select(&PaceRule::ALL[..])
}

/// Creates a loop with a 10 ms period. It works for `frame` ns in each frame and spins during the
/// last `spin` ns of each wait.
fn paced(machine: Machine, rule: PaceRule, spin: i64, frame: i64) -> Setup {
    let mut setup = Setup::new(machine, Nanos::from_secs(1));
    let pace = Step::Pace {
        rule,
        period: Nanos(10 * MS),
        unit: Nanos(1),
        spin: Nanos(spin),
    };
    let program = vec![pace, Step::Frame, work(frame)];
    setup.tasks.push(TaskSpec::new("loop", program));
    setup
}

fn moments(frames: &[Frame]) -> Vec<(Nanos, Nanos)> {
    frames
        .iter()
        .map(|frame| (frame.due, frame.began))
        .collect()
}

proptest! {
    /// A spinner that is alone on its CPU must use all CPU time that interrupts leave. Each frame
    /// must start when it is due or, if a handler is running at that time, when the handler ends.
    #[test]
    fn a_lone_spinner_uses_the_whole_cpu(
        policy in policy(), hz in prop::sample::select(&[100_u64, 250, 1000][..]),
        period in 100_000_i64..30 * MS, share in 0.0..0.9_f64, cost in 0_i64..200_000, stops in any::<bool>(),
        phase in 0_i64..MS
    ) {
        let mut machine = Machine::new(1, hz, policy);
        machine.tick = if stops { TickMode::nohz_full(1) } else { TickMode::Periodic };
        machine.phases = vec![Nanos(phase)];
        machine.costs = Costs { tick: Nanos(cost), ..Costs::default() };
        let mut setup = Setup::new(machine, Nanos::from_secs(1));
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a period fits in an i64")]
        let length = ((period - cost) as f64 * share).max(1.0) as i64;
        let program = vec![Step::SpinUntil(Nanos(period)), Step::Frame, work(length)];
        setup.tasks.push(TaskSpec::new("spinner", program));
        let simulated = followed(&setup);
        let cpu = simulated.report.cpus[0];
        prop_assert_eq!(cpu.time(Mode::Idle), Nanos::ZERO);
        prop_assert_eq!(simulated.report.tasks[0].ran + cpu.time(Mode::Irq), setup.length);
        // Spinning must not count as work.
        let frames = i64::try_from(simulated.report.tasks[0].frames).unwrap();
        let done = simulated.report.tasks[0].work.0;
        prop_assert!(done == frames * length || done == (frames - 1) * length, "{done}");
        let all = simulated.frames.iter();
        let late = all.clone().map(|frame| frame.began - frame.due).max();
        let cost = Nanos(if stops { 0 } else { cost });
        prop_assert!(late.is_none_or(|late| late <= cost), "{late:?}");
        for frame in all {
            prop_assert_eq!(frame.due.0 % period, 0);
            prop_assert!(frame.began >= frame.due);
        }
    }

    /// No frame may be early, regardless of other tasks. A task with a higher priority must always
    /// be able to preempt the spinner.
    #[test]
    fn with_other_tasks_a_spinner_is_never_early(
        policy in policy(), period in 500_000_i64..10 * MS, spin in 0_i64..10 * MS, rule in rules(),
        hog in 10_000_i64..9 * MS, rests in 10_000_i64..9 * MS, switch in 0_i64..9_000, fifo in any::<bool>(),
        until in any::<bool>()
    ) {
        let mut machine = Machine::new(1, 250, policy);
        machine.timers = TimerRule::HighResolution;
        machine.costs = Costs { tick: Nanos(3_000), timer: Nanos(2_000), switch: Nanos(switch) };
        let mut setup = Setup::new(machine, Nanos::from_secs(1));
        let (period, unit) = (Nanos(period), Nanos(1));
        let wait = if until {
            Step::SpinUntil(period)
        } else {
            Step::Pace { rule, period, unit, spin: Nanos(spin) }
        };
        let footprint = Footprint { refill: Nanos(100_000), tau: Nanos(MS) };
        let spinner = TaskSpec::new("spinner", vec![wait, Step::Frame, work(20_000)]);
        setup.tasks.push(spinner.footprint(footprint));
        let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos(rests)));
        let other = TaskSpec::new("other", vec![sleep, work(hog)]).footprint(footprint);
        setup.tasks.push(if fifo { other.class(Class::Fifo(9)) } else { other });
        let simulated = followed(&setup);
        for frame in &simulated.frames {
            prop_assert!(frame.began >= frame.due && frame.ended >= frame.began, "{frame:?}");
        }
        if fifo {
            // The real-time task never waits for the CPU. One round takes its sleep, its work, the
            // costs of its timer, switch and cache reload, and at most six ticks.
            let costs = 2_000 + switch + 100_000 + 6 * 3_000;
            let min = setup.length.0 / (hog + rests + costs) - 1;
            let bursts = i64::try_from(simulated.report.tasks[1].bursts).unwrap();
            prop_assert!(bursts >= min, "{bursts} of {min}");
        }
        prop_assert_eq!(simulated.report.hash, run(&setup).unwrap().hash);
    }

    /// If timers are exact and the kernel's work costs nothing, it must not matter how the loop
    /// waits: frames must be due and start at the same times. Spinning may only increase the CPU
    /// time.
    #[test]
    fn with_exact_sleeps_spinning_only_changes_the_cpu_time(
        rule in rules(), spin in 0_i64..12 * MS, frame in 1_i64..9 * MS
    ) {
        let mut machine = Machine::new(1, 100, Policy::Fair);
        machine.timers = TimerRule::HighResolution;
        let simulated = |spin| followed(&paced(machine.clone(), rule, spin, frame));
        let (sleeps, spins) = (simulated(0), simulated(spin));
        prop_assert_eq!(moments(&sleeps.frames), moments(&spins.frames));
        let is_exact = |timed: &Frame| timed.began == timed.due && timed.cpu == Nanos(frame);
        prop_assert!(sleeps.frames.iter().all(is_exact));
        // The task spins during the last `spin` ns of each wait, or for all of it if it is shorter.
        let wait = if rule == PaceRule::Fixed { 10 * MS } else { 10 * MS - frame };
        let each = frame + spin.min(wait);
        let rounds = i64::try_from(spins.frames.len()).unwrap();
        // The first wait takes a full period. The end of the simulation may cut off the last frame
        // and the wait after it.
        let (min, max) = (rounds * each, (rounds + 1) * each + frame);
        let ran = spins.report.tasks[0].ran.0;
        prop_assert!((min..=max).contains(&ran), "{ran}: {min} to {max}");
    }

    /// A hybrid loop sleeps and then spins. Without high-resolution timers, its sleep ends at the
    /// first tick at or after the time `spin` before the due time. The frame must start at that
    /// tick, or when it is due if that is later.
    #[test]
    fn a_hybrid_sleeps_until_a_tick(
        hz in prop::sample::select(&[100_u64, 250, 300, 1000][..]), spin in 1_i64..9 * MS, phase in 0_i64..900_000
    ) {
        let mut machine = Machine::new(1, hz, Policy::Fair);
        machine.phases = vec![Nanos(phase)];
        let simulated = followed(&paced(machine, PaceRule::Deadline, spin, 50_000));
        prop_assert!(simulated.frames.len() > 90);
        for frame in &simulated.frames {
            let asked = i128::from(frame.due.0 - spin - phase).max(1);
            let (hz, second) = (i128::from(hz), 1_000_000_000);
            let tick = (asked * hz + second - 1) / second;
            let tick = i64::try_from(tick * second / hz).unwrap() + phase;
            // Allow a difference of 1 ns, because tick times are rounded to whole ns.
            let late = frame.began - frame.due.max(Nanos(tick));
            prop_assert!((-1..=1).contains(&late.0), "{frame:?} {tick}");
        }
    }
}

#[test]
fn a_due_time_during_preemption_ends_the_spin_immediately() {
    let mut machine = Machine::new(1, 100, Policy::Fair);
    machine.timers = TimerRule::HighResolution;
    machine.costs.switch = Nanos(1_000);
    let mut setup = paced(machine, PaceRule::Deadline, 10 * MS, MS);
    let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos(19 * MS)));
    let above = TaskSpec::new("above", vec![sleep, work(4 * MS), Step::Exit]);
    setup.tasks.push(above.class(Class::Fifo(1)));
    let simulated = followed(&setup);
    let times = |frame: &Frame| (frame.due.0, frame.began.0, frame.cpu.0);
    let frames: Vec<_> = simulated.frames.iter().take(3).map(times).collect();
    // The switch at time 0 delays the other task's 19 ms sleep by 1 µs. The switches before and
    // after its 4 ms of work take another 1 µs each.
    assert_eq!(
        frames,
        [
            (10 * MS, 10 * MS, MS),
            (20 * MS, 23 * MS + 3_000, MS),
            (30 * MS, 30 * MS, MS)
        ]
    );
}

#[test]
fn a_negative_spin_is_refused() {
    let setup = paced(
        Machine::new(1, 100, Policy::Fair),
        PaceRule::Fixed,
        -1,
        1_000,
    );
    assert!(run(&setup).is_err());
}
