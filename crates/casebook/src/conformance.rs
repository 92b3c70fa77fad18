//! Tests whether the simulator reproduces a paced loop that was measured in the lab: its frames,
//! its waits and its sampled CPU time.
//!
//! The model needs three inputs that it cannot compute: the actual CPU time of a frame's work, the
//! time that code takes between a timer and a frame ([`code`]), and how long a hybrid loop spins
//! before a frame. The loop itself measures the spin time before it starts.
//!
//! The model does not know when the loop started. If a few periods add up to a whole number of
//! ticks, the loop's frames keep returning to the same few phases of the tick. The waits and
//! samples then depend on when the loop started. That is why the model simulates [`PHASES`] start
//! phases and predicts ranges.

use ticktax_model::Nanos;
use ticktax_model::comparison::{Contrast, Measure, Tolerance};
use ticktax_model::machine::Machine as Facts;
use ticktax_model::pace::{CpuClock, Frame, PaceArm, PaceRule, Schedule, SleepMethod};
use ticktax_sim::{Call, Law, Machine, Policy, Setup, Step, TaskId, TaskSpec, TickMode, TimerRule};

/// Number of start phases within one tick that are simulated.
pub const PHASES: i64 = 16;
/// Tolerance for the frame rate, as a fraction of the measured rate, and for the mean wait, as a
/// fraction of the period.
const SHARE: f64 = 0.01;
/// Tolerance for the sampled CPU share, in percentage points.
const POINTS: f64 = 0.5;
/// All tolerances, in the form in which reports show them.
pub const TOLERANCE: Tolerance = Tolerance {
    rate_share: SHARE,
    wait_period_share: SHARE,
    sampled_share: POINTS / 100.0,
};
/// Default timer slack of Linux tasks. The kernel may fire a timer this much late so that several
/// timers can share one interrupt.
const SLACK: Nanos = Nanos::from_micros(50);
/// Times that the loop's code is assumed to take between a tick and a frame if a kernel's
/// measurements do not show the actual time. In the lab's guests with high-resolution timers, the
/// code takes 11 to 18 µs, or up to 30 µs on arm64.
const CODES: [Nanos; 3] = [Nanos::ZERO, Nanos::from_micros(25), Nanos::from_micros(50)];

/// The properties of a kernel that affect a paced loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Tick rate in Hz.
    pub hz: u32,
    /// Whether timers expire between ticks.
    pub high_resolution: bool,
    /// Whether the tick continues while the CPU is idle.
    pub periodic: bool,
}

impl Kernel {
    /// Returns the kernel's properties from a description of the machine. Returns `None` if the
    /// description lacks any of them.
    pub fn from_machine(machine: &Facts) -> Option<Self> {
        Some(Self {
            hz: machine.hz_configured?,
            high_resolution: machine.high_resolution?,
            periodic: *machine.tick_mode.as_ref()? == TickMode::Periodic,
        })
    }

    fn tick(self) -> Nanos {
        Nanos(1_000_000_000 / i64::from(self.hz.max(1)))
    }
}

/// Parameters of a paced loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Requested frame period.
    pub period: Nanos,
    /// CPU time that a frame's work takes.
    pub work: Nanos,
    /// Sleep method.
    pub sleep: SleepMethod,
    /// Rule that determines when frames are due.
    pub rule: PaceRule,
    /// Time before a frame at which a [`SleepMethod::Hybrid`] loop starts to spin.
    pub margin: Option<Nanos>,
    /// Time that the code of the kernel and of the loop takes from the end of a sleep's slack to
    /// the start of the frame. Used only if timers can expire between ticks.
    pub code: Nanos,
    /// Length of the run. A short run has few samples, so its sampled CPU share depends on the
    /// phase of the frames.
    pub length: Nanos,
}

/// Figures from one run of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Frames per second.
    pub rate: f64,
    /// Mean time from a frame's due time to its start, in ns.
    pub wait: f64,
    /// Number of frame slots per second in which no frame started on time.
    pub overshot: f64,
    /// CPU share that the loop actually used, in %.
    pub used: f64,
    /// CPU share according to samples at ticks, in %, or `None` if the kernel does not report it.
    pub sampled: Option<f64>,
}

/// Minimum and maximum of a figure over all start phases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Range {
    /// Returns the range from the smallest to the largest of `values`.
    pub fn from_values(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Returns how far `value` is from the range: negative below the range, and 0 within it.
    pub fn off(&self, value: f64) -> f64 {
        (value - self.max).max(0.0) - (self.min - value).max(0.0)
    }

    /// Returns the range in a different unit. One of the old unit is `factor` of the new one.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            min: self.min * factor,
            max: self.max * factor,
        }
    }
}

/// The model's predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Frames per second.
    pub rate: Range,
    /// Mean time from a frame's due time to its start, in ns.
    pub wait: Range,
    /// Number of frame slots per second in which no frame started on time.
    pub overshot: Range,
    /// CPU share according to samples at ticks, in %.
    pub sampled: Range,
}

/// Estimates how long code runs from the end of a sleep's slack to the frame: the median wait minus
/// the slack. `rows` are all loops that were measured in the guest.
///
/// For calls with a resolution of 1 ms, the wait mostly consists of rounding. The estimate for
/// `poll` and `epoll` therefore comes from `select`, which takes the same path through the kernel.
/// It is 0 if `select` was not measured.
///
/// These few microseconds matter only if several periods of the loop are close to a whole number of
/// ticks. They then determine the phases of the tick at which the frames stay.
pub fn code(rows: &[PaceArm], row: &PaceArm) -> Nanos {
    let alike = |other: &&PaceArm| {
        let (other, row) = (other.spec, row.spec);
        (other.sleep, other.rule, other.rate) == (SleepMethod::Select, row.rule, row.rate)
    };
    let shown = match Call::from_method(row.spec.sleep) {
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

/// Returns the timer slack that applies to this sleep method. A timerfd has none
/// (docs/reference/pace.md).
fn slack(sleep: SleepMethod) -> Nanos {
    if sleep.has_slack() {
        SLACK
    } else {
        Nanos::ZERO
    }
}

/// Returns the loop that `row` measured, with its figures. `rows` are all loops that were measured
/// in the same guest. Returns `None` if `row` has no figures about frames.
pub fn measured(rows: &[PaceArm], row: &PaceArm) -> Option<(Loop, Figures)> {
    let figures = row.figures.as_ref()?;
    let seconds = row.elapsed.as_secs_f64();
    let wait = figures.wakeup.as_ref().or(figures.wait.as_ref())?;
    let machine = row
        .readings
        .iter()
        .find(|reading| reading.clock == CpuClock::Machine);
    let share = |time: Nanos, total: Nanos| time.as_secs_f64() / total.as_secs_f64() * 100.0;
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
            sampled: machine.map(|reading| share(reading.time, reading.elapsed)),
        },
    ))
}

/// Predicts a loop's figures on `kernel`. Returns `None` for a hybrid loop with an unknown spin
/// time.
pub fn predict(kernel: Kernel, pace: &Loop) -> Option<Predicted> {
    let wait = wait(pace)?;
    let run = |code: Nanos| (0..PHASES).map(move |phase| simulate(kernel, pace, wait, code, phase));
    // If sleeps end on ticks, the waits don't reveal how long the code after a sleep takes, so try
    // several values.
    let codes = if kernel.high_resolution {
        vec![pace.code]
    } else {
        CODES.to_vec()
    };
    let runs: Vec<Figures> = codes.into_iter().flat_map(run).collect();
    let range = |figure: fn(&Figures) -> f64| Range::from_values(runs.iter().map(figure));
    Some(Predicted {
        rate: range(|run| run.rate),
        wait: range(|run| run.wait),
        overshot: range(|run| run.overshot),
        sampled: range(|run| run.sampled.unwrap_or(0.0)),
    })
}

/// A measured figure, compared with the prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Figure.
    pub measure: Measure,
    /// Distance of the measured value from the predicted range, and the conclusion from it.
    pub contrast: Contrast,
    /// Largest distance that counts as agreement.
    pub tolerance: f64,
}

/// Compares the measured figures with the prediction.
pub fn deviations(pace: &Loop, measured: &Figures, predicted: &Predicted) -> Vec<Deviation> {
    let compare = |measure, value: f64, range: Range, tolerance| Deviation {
        measure,
        contrast: Contrast::tolerance(range.off(value), tolerance),
        tolerance,
    };
    let (rate, wait) = (measured.rate, measured.wait);
    let wait_limit = SHARE * pace.period.0 as f64;
    let mut all = vec![
        compare(Measure::Fps, rate, predicted.rate, SHARE * rate),
        compare(Measure::LateMean, wait, predicted.wait, wait_limit),
    ];
    all.extend(measured.sampled.map(|share| {
        let predicted = predicted.sampled.scaled(0.01);
        compare(Measure::Sampled, share / 100.0, predicted, POINTS / 100.0)
    }));
    all
}

/// Returns a machine with one CPU that runs `kernel`. `phase`, which must be below [`PHASES`],
/// determines when the machine first ticks.
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

fn wait(pace: &Loop) -> Option<Step> {
    let Some(call) = Call::from_method(pace.sleep) else {
        return Some(Step::Pace {
            rule: pace.rule,
            period: pace.period,
            unit: pace.sleep.unit(),
            spin: pace.sleep.spin(pace.period, pace.margin)?,
        });
    };
    Some(match pace.rule {
        PaceRule::Deadline => Step::SleepUntil(call, pace.period),
        PaceRule::Remaining => Step::SleepRest {
            call,
            time: pace.period,
            unit: Nanos(1),
        },
        PaceRule::Fixed => Step::Sleep(call, Law::Fixed(pace.period)),
    })
}

/// Simulates the loop at one start phase. `wait` is the step that waits for the next frame, and
/// `code` is how long code runs after that wait.
fn simulate(kernel: Kernel, pace: &Loop, wait: Step, code: Nanos, phase: i64) -> Figures {
    let mut machine = machine(kernel, phase);
    machine.slack = slack(pace.sleep);
    let mut setup = Setup::new(machine, pace.length);
    let work = Step::Work(Law::Fixed(pace.work.max(Nanos(1))));
    let late = Step::Late(Law::Fixed(code));
    setup
        .tasks
        .push(TaskSpec::new("loop", vec![late, wait, Step::Frame, work]));
    let ran = ticktax_sim::frames(&setup, TaskId(0));
    let (followed, frames) = ran.unwrap_or_else(|error| panic!("the loop's own machine: {error}"));
    let report = followed.report;
    let seconds = pace.length.as_secs_f64();
    let waits = frames.iter().skip(1).map(|frame| frame.began - frame.due);
    let mut schedule = Schedule::new(pace.period);
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

/// Returns the mean number of frames per second, from the first frame to the last.
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

    use super::{Figures, Kernel, Loop, Measure, deviations, predict};

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
    fn high_resolution_timers_ignore_the_tick() {
        let made = predict(kernel(100, true), &LOOP).unwrap();
        assert!((made.rate.min - 1000.0 / 30.0).abs() < 1e-6);
        // The timer slack must be the only delay.
        assert!((made.wait.max - 50_000.0).abs() < 1.0, "{:?}", made.wait);
        // The period is three ticks, so the frames always start at the same phase of the tick.
        // Either one tick in three hits the 1 ms of work, or none does.
        assert!(made.sampled.min.abs() < 1e-9);
        assert!(
            (made.sampled.max - 100.0 / 3.0).abs() < 0.2,
            "{:?}",
            made.sampled
        );
    }

    #[test]
    fn low_resolution_sleeps_end_on_ticks_and_samples_miss_them() {
        let made = predict(kernel(100, false), &LOOP).unwrap();
        // Depending on the start phase, frames must be up to a tick late.
        assert!(
            made.wait.max < 10e6 && made.wait.max > 9e6,
            "{:?}",
            made.wait
        );
        assert!(made.sampled.max < 1e-9);
        // With this rule, a relative sleep of 30 ms follows the 1 ms of work. The sleep ends on a
        // tick, 40 ms after the start of the frame.
        let fixed = Loop {
            rule: PaceRule::Fixed,
            ..LOOP
        };
        let made = predict(kernel(100, false), &fixed).unwrap();
        assert!((made.rate.min - 25.0).abs() < 0.01, "{:?}", made.rate);
    }

    /// With the rule `remaining`, nine periods of `poll` take 262 ms and 10 µs. At 500 Hz, 131
    /// ticks take 262 ms. In one of the nine sleeps, a tick falls within the slack, and the sleep
    /// ends at that tick. This absorbs the 10 µs, so the frames stay at nine phases of the tick. At
    /// four of these, a frame starts less than 1.05 ms before the next tick.
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
        // If the code takes no time, there is nothing to absorb, so the frames pass through all
        // phases.
        let free = predict(kernel(500, true), &code(0)).unwrap();
        assert!(free.sampled.min > four + 0.4, "{free:?}");
    }

    /// Seven periods are fifty ticks of 4 ms. If a frame starts 25 µs after a tick, the sixth frame
    /// after it is due 3.45 ms after a tick. The loop asks to be woken 50 µs before that, and the
    /// tick is within this sleep's slack. A kernel that has stopped the tick does not end the sleep
    /// at that tick, but at the next one.
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
        // A tick hits one frame in seven. If the frame is late, it starts together with the tick
        // and isn't hit.
        assert!(stops.sampled.min < 0.5, "{stops:?}");
        assert!(goes_on.sampled.min > 1.9, "{goes_on:?}");
    }

    #[test]
    fn a_spinning_loop_is_on_time_and_fully_sampled() {
        let spin = Loop {
            sleep: SleepMethod::Spin,
            ..LOOP
        };
        let made = predict(kernel(100, false), &spin).unwrap();
        assert!(made.wait.max < 1.0, "{:?}", made.wait);
        assert!(made.sampled.min > 99.9, "{:?}", made.sampled);
    }

    #[test]
    fn a_hybrid_is_late_if_its_margin_is_shorter_than_a_tick() {
        let hybrid = |margin| Loop {
            sleep: SleepMethod::Hybrid,
            margin,
            ..LOOP
        };
        assert_eq!(predict(kernel(100, false), &hybrid(None)), None);
        // The loop asks to be woken 9 ms before the frame is due. The sleep ends on a tick, up to
        // 10 ms late, so a frame is at most 1 ms late.
        let at_margin =
            |ms| predict(kernel(100, false), &hybrid(Some(Nanos::from_millis(ms)))).unwrap();
        let made = at_margin(9);
        assert!(made.wait.min < 1.0, "{:?}", made.wait);
        assert!((0.3e6..1e6).contains(&made.wait.max), "{:?}", made.wait);
        // If the loop may spin for a whole tick, no frame may be late. One tick in three must find
        // the loop spinning or working.
        let made = at_margin(10);
        assert!(made.wait.max < 1.0, "{:?}", made.wait);
        assert!((33.0..34.0).contains(&made.sampled.max), "{made:?}");
    }

    #[test]
    fn deviations_beyond_the_tolerance_differ() {
        let made = predict(kernel(100, true), &LOOP).unwrap();
        let same = Figures {
            rate: 1000.0 / 30.0,
            wait: 110_000.0,
            overshot: 0.0,
            used: 3.3,
            sampled: Some(10.0),
        };
        let differ = |figures: &Figures| -> Vec<Measure> {
            let all = deviations(&LOOP, figures, &made).into_iter();
            let beyond = all.filter(|deviation| deviation.contrast.verdict.differs());
            beyond.map(|deviation| deviation.measure).collect()
        };
        assert_eq!(differ(&same), []);
        let other = Figures {
            rate: 33.0,
            wait: 400_000.0,
            sampled: Some(34.2),
            ..same
        };
        let all = [Measure::Fps, Measure::LateMean, Measure::Sampled];
        assert_eq!(differ(&other), all);
    }
}
