//! Whether the model does what a real kernel did: a paced loop's frames, waits and sampled CPU time,
//! measured in the lab, beside the same loop in the simulator.
//!
//! The model is given what is not its to know: how long the work of a frame really took, how long
//! the code from a timer to a frame ([`code`]), and for how long before a frame a hybrid spins, which
//! the loop measures before it begins. It is not given the moment at which the loop was started. A loop whose period is a multiple of a part of
//! the tick keeps to a few phases of it for ever, so its waits and samples depend on that moment;
//! the model is run from [`PHASES`] of them and says between what.

use ticktax_model::Nanos;
use ticktax_model::kernels::{Difference, Tolerance};
use ticktax_model::machine::Machine as Facts;
use ticktax_model::pace::{CpuClock, Frame, PaceRule, PaceVariant, Schedule, SleepMethod};
use ticktax_sim::{Call, Law, Machine, Policy, Setup, Step, TaskId, TaskSpec, TickMode, TimerRule};

/// Moments within a tick at which the loop is started.
pub const PHASES: i64 = 16;
/// By how much a rate or a sleep may differ, as a share.
const SHARE: f64 = 0.01;
/// By how much a sampled share of a CPU may differ, in points.
const POINTS: f64 = 0.5;
/// The same for readers.
pub const TOLERANCE: Tolerance = Tolerance {
    rate_share: SHARE,
    wait_period_share: SHARE,
    sampled_share: POINTS / 100.0,
};
/// By how much Linux lets a timer of a task be late, so as to join it with others.
const SLACK: Nanos = Nanos::from_micros(50);
/// What code from a tick to the frame may take, where nothing shows what it does: in the lab's guests with
/// high-resolution timers it is 11 to 18 µs, on arm64 up to 30.
const CODES: [Nanos; 3] = [Nanos::ZERO, Nanos::from_micros(25), Nanos::from_micros(50)];

/// A kernel, as far as the model of a paced loop depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its tick rate, in Hz.
    pub hz: u32,
    /// Whether timers end between ticks.
    pub high_resolution: bool,
    /// Whether the tick goes on while nothing runs.
    pub periodic: bool,
}

impl Kernel {
    /// What a machine says of its kernel; `None` where it does not say enough.
    pub fn of(machine: &Facts) -> Option<Self> {
        Some(Self {
            hz: machine.hz_configured?,
            high_resolution: machine.high_resolution?,
            periodic: *machine.tick_mode.as_ref()? == TickMode::Periodic,
        })
    }

    /// The length of its tick.
    fn tick(self) -> Nanos {
        Nanos(1_000_000_000 / i64::from(self.hz.max(1)))
    }
}

/// A paced loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// From one frame to the next, as asked for.
    pub period: Nanos,
    /// The CPU time of a frame.
    pub work: Nanos,
    /// How it sleeps.
    pub sleep: SleepMethod,
    /// When frames are due.
    pub rule: PaceRule,
    /// How long before a frame is due it begins to spin, where it is a [`SleepMethod::Hybrid`].
    pub margin: Option<Nanos>,
    /// How long the kernel's and its own code take from the end of a sleep's slack to the frame,
    /// where timers end between ticks.
    pub code: Nanos,
    /// For how long it is watched: over a short time samples are few, and depend on where in the
    /// tick its frames lay.
    pub length: Nanos,
}

/// What became of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Frames a second.
    pub rate: f64,
    /// The mean wait of a frame from when it was due, in ns.
    pub wait: f64,
    /// Steps of the rate that no frame was in time for, a second.
    pub overshot: f64,
    /// The share of a CPU that it used, in %.
    pub used: f64,
    /// The share that sampling at ticks found, in %; `None` where the kernel did not tell.
    pub sampled: Option<f64>,
}

/// The least and the most of a figure over all phases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Range {
    /// Of all values.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// How far outside a value lies; 0 within.
    pub fn off(&self, value: f64) -> f64 {
        (self.min - value).max(value - self.max).max(0.0)
    }
}

/// What the model makes of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Frames a second.
    pub rate: Range,
    /// The mean wait, in ns.
    pub wait: Range,
    /// Steps of the rate that no frame is in time for, a second.
    pub overshot: Range,
    /// The share of a CPU that sampling finds, in %.
    pub sampled: Range,
}

/// How long code takes from the end of a sleep's slack to the frame, by the waits of the loops of
/// one guest: a wait of the middle, less its slack. A call that asks for whole ms shows its rounding
/// instead, so of `poll` and `epoll` it is what `select` shows, which goes the same way through the
/// kernel; nothing where that is not among the loops.
///
/// Some µs decide about nothing but a loop of which some periods are nearly a number of ticks: which
/// phases of the tick its frames keep to.
pub fn code(rows: &[PaceVariant], row: &PaceVariant) -> Nanos {
    let alike = |other: &&PaceVariant| {
        let (other, row) = (other.spec, row.spec);
        (other.sleep, other.rule, other.rate) == (SleepMethod::Select, row.rule, row.rate)
    };
    let shown = match Call::of(row.spec.sleep) {
        Some(Call::Poll) => rows.iter().find(alike),
        Some(Call::Select | Call::Nanosleep) => Some(row),
        None => None,
    };
    let figures = shown.and_then(|shown| shown.figures.as_ref());
    let waits = figures.and_then(|figures| figures.wakeup.as_ref());
    let middle = waits.and_then(|waits| waits.quantile(0.5));
    middle.map_or(Nanos::ZERO, |middle| {
        (middle - slack(row.spec.sleep)).max(Nanos::ZERO)
    })
}

/// Timer slack of this kind of sleep: a timerfd has none (docs/reference/pace.md).
fn slack(sleep: SleepMethod) -> Nanos {
    if sleep.has_slack() {
        SLACK
    } else {
        Nanos::ZERO
    }
}

/// What was measured of a loop, one of those of its guest; `None` where no frame was.
pub fn measured(rows: &[PaceVariant], row: &PaceVariant) -> Option<(Loop, Figures)> {
    let figures = row.figures.as_ref()?;
    let seconds = row.elapsed.as_secs_f64();
    let wait = figures.wakeup.as_ref().or(figures.wait.as_ref())?;
    let machine = row.readings.iter().find(|it| it.clock == CpuClock::Machine);
    let share = |time: Nanos, of: Nanos| time.as_secs_f64() / of.as_secs_f64() * 100.0;
    Some((
        Loop {
            period: figures.period,
            work: figures
                .busy
                .as_ref()
                .map_or(row.spec.work, |busy| busy.mean),
            sleep: row.spec.sleep,
            rule: row.spec.rule,
            margin: row.margin,
            code: code(rows, row),
            length: Nanos(row.elapsed.0 / i64::try_from(row.turns.max(1)).unwrap_or(1)),
        },
        Figures {
            rate: figures.average_fps?,
            wait: wait.mean.0 as f64,
            overshot: figures.overshot as f64 / seconds,
            used: share(row.cpu_time, row.elapsed),
            sampled: machine.map(|it| share(it.time, it.elapsed)),
        },
    ))
}

/// What the model makes of `it` on `kernel`; `None` for a hybrid whose margin is not known.
pub fn predict(kernel: Kernel, it: &Loop) -> Option<Predicted> {
    let wait = wait(it)?;
    let run = |code: Nanos| (0..PHASES).map(move |phase| simulate(kernel, it, (wait, code), phase));
    // A wait that ends on a tick does not show how long the code after it took.
    let codes = if kernel.high_resolution {
        vec![it.code]
    } else {
        CODES.to_vec()
    };
    let runs: Vec<Figures> = codes.into_iter().flat_map(run).collect();
    let of = |figure: fn(&Figures) -> f64| Range::of(runs.iter().map(figure));
    Some(Predicted {
        rate: of(|run| run.rate),
        wait: of(|run| run.wait),
        overshot: of(|run| run.overshot),
        sampled: of(|run| run.sampled.unwrap_or(0.0)),
    })
}

/// Where they differ.
pub fn differences(it: &Loop, measured: &Figures, predicted: &Predicted) -> Vec<Difference> {
    let mut all = Vec::new();
    if predicted.rate.off(measured.rate) > SHARE * measured.rate {
        all.push(Difference::Rate);
    }
    if predicted.wait.off(measured.wait) > SHARE * it.period.0 as f64 {
        all.push(Difference::Wait);
    }
    let sampled = measured.sampled.map(|it| predicted.sampled.off(it));
    if sampled.is_some_and(|off| off > POINTS) {
        all.push(Difference::Sampled);
    }
    all
}

/// Whether the phase decides more than what may differ: the range of waits or of samples is wider than
/// twice that.
pub fn is_wide(it: &Loop, predicted: &Predicted) -> bool {
    let width = |range: Range| range.max - range.min;
    width(predicted.wait) > 2.0 * SHARE * it.period.0 as f64
        || width(predicted.sampled) > 2.0 * POINTS
}

/// A machine of one CPU with this kernel, whose tick is at one of [`PHASES`] when it starts.
pub fn machine(kernel: Kernel, phase: i64) -> Machine {
    let mut machine = Machine::new(1, u64::from(kernel.hz), Policy::Fair);
    machine.phases = vec![Nanos(kernel.tick().0 * phase / PHASES)];
    machine.timers = if kernel.high_resolution {
        TimerRule::HighResolution
    } else {
        TimerRule::FirstTick
    };
    machine.slack = SLACK;
    machine.tick = if kernel.periodic {
        TickMode::Periodic
    } else {
        TickMode::NohzIdle
    };
    machine
}

/// The step in which the loop waits for its next frame.
fn wait(it: &Loop) -> Option<Step> {
    let Some(call) = Call::of(it.sleep) else {
        return Some(Step::Pace {
            rule: it.rule,
            period: it.period,
            unit: it.sleep.unit(),
            spin: it.sleep.spin(it.period, it.margin)?,
        });
    };
    Some(match it.rule {
        PaceRule::Deadline => Step::SleepUntil(call, it.period),
        PaceRule::Remaining => Step::SleepRest {
            call,
            time: it.period,
            unit: Nanos(1),
        },
        PaceRule::Fixed => Step::Sleep(call, Law::Fixed(it.period)),
    })
}

/// Runs the loop, with this step to wait and this much code after it, from one phase of the tick.
fn simulate(kernel: Kernel, it: &Loop, (wait, code): (Step, Nanos), phase: i64) -> Figures {
    let mut machine = machine(kernel, phase);
    machine.slack = slack(it.sleep);
    let mut setup = Setup::new(machine, it.length);
    let work = Step::Work(Law::Fixed(it.work.max(Nanos(1))));
    let late = Step::Late(Law::Fixed(code));
    setup
        .tasks
        .push(TaskSpec::new("loop", vec![late, wait, Step::Frame, work]));
    let ran = ticktax_sim::frames(&setup, TaskId(0));
    let (followed, frames) = ran.unwrap_or_else(|error| panic!("the loop's own machine: {error}"));
    let report = followed.report;
    let seconds = it.length.as_secs_f64();
    let waits = frames.iter().skip(1).map(|frame| frame.began - frame.due);
    let mut schedule = Schedule::new(it.period);
    let missed = frames.iter().filter_map(|frame| {
        schedule.begin(frame.due);
        schedule.take(frame.began)
    });
    let missed: u64 = missed.sum();
    let count = frames.len().saturating_sub(1).max(1) as f64;
    let sum: Nanos = waits.sum();
    let sampled = report.tasks[0].sampled as f64 / f64::from(kernel.hz);
    Figures {
        rate: rate(&frames),
        wait: sum.0 as f64 / count,
        overshot: missed as f64 / seconds,
        used: report.tasks[0].ran.as_secs_f64() / seconds * 100.0,
        sampled: Some(sampled / seconds * 100.0),
    }
}

/// Frames a second, from the first to the last.
fn rate(frames: &[Frame]) -> f64 {
    match (frames.first(), frames.last()) {
        (Some(first), Some(last)) if last.began > first.began => {
            (frames.len() - 1) as f64 / (last.began - first.began).as_secs_f64()
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{PaceRule, SleepMethod};

    use super::{Difference, Figures, Kernel, Loop, differences, predict};

    const LOOP: Loop = Loop {
        period: Nanos::from_millis(30),
        work: Nanos::from_millis(1),
        sleep: SleepMethod::Nanosleep,
        rule: PaceRule::Deadline,
        margin: None,
        code: Nanos::ZERO,
        length: Nanos::from_secs(20),
    };

    fn kernel(hz: u32, high_resolution: bool) -> Kernel {
        Kernel {
            hz,
            high_resolution,
            periodic: true,
        }
    }

    #[test]
    fn high_resolution_knows_no_tick() {
        let made = predict(kernel(100, true), &LOOP).unwrap();
        assert!((made.rate.min - 1000.0 / 30.0).abs() < 1e-6);
        // The slack of a task's timers.
        assert!((made.wait.max - 50_000.0).abs() < 1.0, "{:?}", made.wait);
        // Three ticks a period, one phase: a frame of 1 ms is found by one of them or none.
        assert!(made.sampled.min.abs() < 1e-9);
        assert!(
            (made.sampled.max - 100.0 / 3.0).abs() < 0.2,
            "{:?}",
            made.sampled
        );
    }

    #[test]
    fn without_it_sleeps_end_on_ticks_and_samples_miss_them() {
        let made = predict(kernel(100, false), &LOOP).unwrap();
        // By the phase at which it starts, anything up to a tick late.
        assert!(
            made.wait.max < 10e6 && made.wait.max > 9e6,
            "{:?}",
            made.wait
        );
        assert!(made.sampled.max < 1e-9);
        // A relative sleep of 30 ms after 1 ms of work is 40 ms.
        let fixed = Loop {
            rule: PaceRule::Fixed,
            ..LOOP
        };
        let made = predict(kernel(100, false), &fixed).unwrap();
        assert!((made.rate.min - 25.0).abs() < 0.01, "{:?}", made.rate);
    }

    /// Nine periods of `poll` by `remaining` are 262 ms and 10 µs, and that is 131 ticks at 500 Hz:
    /// a tick within the slack of one of the nine takes the 10 µs away, so that frames keep to nine
    /// phases. Of these, those that begin less than 1.05 ms before the next tick are four.
    #[test]
    fn a_tick_within_the_slack_keeps_frames_to_phases() {
        let code = |tenths: i64| Loop {
            period: Nanos(28_571_428),
            work: Nanos(1_049_000),
            sleep: SleepMethod::Poll,
            rule: PaceRule::Remaining,
            code: Nanos(tenths * 100),
            length: Nanos::from_secs(30),
            ..LOOP
        };
        let held = predict(kernel(500, true), &code(133)).unwrap();
        let four = 100.0 * 4.0 * 2.0 / 262.0;
        assert!((held.rate.max - 9e3 / 262.0).abs() < 0.001, "{held:?}");
        assert!((held.sampled.min - four).abs() < 0.1, "{held:?}");
        assert!((held.sampled.max - four).abs() < 0.1, "{held:?}");
        // Without the code there is nothing to take away, and all phases are met.
        let free = predict(kernel(500, true), &code(0)).unwrap();
        assert!(free.sampled.min > four + 0.4, "{free:?}");
    }

    /// Seven periods are fifty ticks of 4 ms. A frame that begins 25 µs after a tick has the sixth
    /// after it due 3.45 ms after one, and asks to be woken 50 µs before that: the tick is within its
    /// slack, and a kernel that has stopped it does not end the sleep there, but a tick later.
    #[test]
    fn a_stopped_tick_does_not_end_a_sleep_within_its_slack() {
        let hybrid = Loop {
            period: Nanos(28_571_428),
            work: Nanos(1_045_380),
            sleep: SleepMethod::Hybrid,
            rule: PaceRule::Remaining,
            margin: Some(Nanos(3_500_440)),
            ..LOOP
        };
        let at = |periodic| {
            let kernel = Kernel {
                periodic,
                ..kernel(250, false)
            };
            predict(kernel, &hybrid).unwrap()
        };
        let (stops, goes_on) = (at(false), at(true));
        assert!(stops.wait.max > 50e3, "{stops:?}");
        assert!(goes_on.wait.max < 10e3, "{goes_on:?}");
        // One of seven frames is found by a tick, unless it is late, and then begins with one.
        assert!(stops.sampled.min < 0.5, "{stops:?}");
        assert!(goes_on.sampled.min > 1.9, "{goes_on:?}");
    }

    #[test]
    fn who_spins_is_in_time_and_always_there() {
        let spin = Loop {
            sleep: SleepMethod::Spin,
            ..LOOP
        };
        let made = predict(kernel(100, false), &spin).unwrap();
        assert!(made.wait.max < 1.0, "{:?}", made.wait);
        assert!(made.sampled.min > 99.9, "{:?}", made.sampled);
    }

    #[test]
    fn a_hybrid_is_as_late_as_its_margin_is_short() {
        let hybrid = |margin| Loop {
            sleep: SleepMethod::Hybrid,
            margin,
            ..LOOP
        };
        assert_eq!(predict(kernel(100, false), &hybrid(None)), None);
        // A sleep that ends on a tick is up to 10 ms long, and 9 of them are spun away: what is
        // late is at most 1 ms.
        let of = |ms| predict(kernel(100, false), &hybrid(Some(Nanos::from_millis(ms)))).unwrap();
        let made = of(9);
        assert!(made.wait.min < 1.0, "{:?}", made.wait);
        assert!((0.3e6..1e6).contains(&made.wait.max), "{:?}", made.wait);
        // With a whole tick none is late, and a tick in three finds it spinning, or working.
        let made = of(10);
        assert!(made.wait.max < 1.0, "{:?}", made.wait);
        assert!((33.0..34.0).contains(&made.sampled.max), "{made:?}");
    }

    #[test]
    fn differences_are_told_by_what_they_are_in() {
        let made = predict(kernel(100, true), &LOOP).unwrap();
        let same = Figures {
            rate: 1000.0 / 30.0,
            wait: 110_000.0,
            overshot: 0.0,
            used: 3.3,
            sampled: Some(10.0),
        };
        assert_eq!(differences(&LOOP, &same, &made), []);
        let other = Figures {
            rate: 33.0,
            wait: 400_000.0,
            sampled: Some(34.2),
            ..same
        };
        let all = [Difference::Rate, Difference::Wait, Difference::Sampled];
        assert_eq!(differences(&LOOP, &other, &made), all);
    }
}
