//! Paced loops, whether ticktax's own or another program's, and what happens to their frames.
//!
//! # Terms
//! - A loop of `r` frames per second has a *slot* every `1/r` seconds. A frame is *due* at the
//!   start of its slot. If a loop does not keep to a grid, its [rule](PaceRule) defines when frames
//!   are due.
//! - *Dropped*: a slot in which no frame started. There are two causes. Either the work of the
//!   previous frame continued into this slot, so the loop cannot keep up. Or the loop *slept
//!   through* the slot: it was asleep from the start of the slot until the start of the next one.
//! - *Overshot*: a step of a fixed [schedule](Schedule) that no frame reached in time. The schedule
//!   has one step per period, starting with the first frame, regardless of the loop's rule. A frame
//!   performs the last step that is due, and any earlier steps that were not performed are
//!   overshot. Under [`PaceRule::Deadline`], these are the dropped slots. Under the other rules,
//!   slipped frames also count. If a threshold is given, a step is also overshot if its frame
//!   started later than that after the step was due. Cases, `sim`, sweeps and the lab all use this
//!   definition. If a program has fixed steps, they are the schedule.
//! - *Late*: a frame that started more than [`late_from`], or the given threshold, after it was
//!   due. None of this depends on the kernel's tick.
//! - *Slipped*: a frame that the rate calls for but that was never due. Under a relative rule, each
//!   delay postpones all later frames, so fewer frames come due than the rate calls for.
//! - Waits count from the due time. A dropped slot also counts as a wait, which lasts until the
//!   next frame starts. Otherwise, a long stall would count as only one wait even though it delayed
//!   many frames (coordinated omission).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

mod comparison;
mod figures;
mod rate;
mod rhythm;
mod statement;
mod turns;

pub use comparison::{Choice, Criterion, PaceArm, PaceTurn};
pub use figures::{
    CpuClock, CpuReading, CpuStatement, Distribution, EndedIdle, Figures, FpsSeconds, Quantile,
    TickAlias, Wakeups,
};
pub use rate::{FrameRate, FrameRateError};
pub use rhythm::{FrameRhythm, NoRhythm};
pub use statement::{
    FrameMark, LoopReport, LoopRun, PaceEnd, PaceStatement, ProcessReport, RhythmReport, Subject,
    ThreadReport,
};
pub use turns::{LoopSpec, LoopTurns, frame_source, turn_of};

/// How a paced loop waits for its next frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum SleepMethod {
    /// `nanosleep` for the remaining time.
    #[serde(rename = "nanosleep")]
    Nanosleep,
    /// `usleep` for the remaining time in whole microseconds, rounded up.
    #[serde(rename = "usleep")]
    Usleep,
    /// `clock_nanosleep` until an absolute time (`TIMER_ABSTIME`).
    #[serde(rename = "clock_nanosleep-abs")]
    ClockNanosleepAbs,
    /// A `timerfd` set to an absolute time, and a blocking `read` of it.
    #[serde(rename = "timerfd")]
    Timerfd,
    /// `select` without file descriptors, for the remaining time in whole microseconds, rounded up.
    #[serde(rename = "select")]
    Select,
    /// `poll` without file descriptors, for the remaining time in whole milliseconds, rounded up.
    #[serde(rename = "poll")]
    Poll,
    /// `epoll_wait` without file descriptors, for the remaining time in whole milliseconds, rounded
    /// up.
    #[serde(rename = "epoll")]
    Epoll,
    /// No sleep: the loop reads the clock over and over until the frame is due.
    #[serde(rename = "spin")]
    Spin,
    /// `clock_nanosleep` until shortly before the due time, then reading the clock as in
    /// [`SleepMethod::Spin`]. The length of that last part, the margin, is calibrated.
    #[serde(rename = "hybrid")]
    Hybrid,
}

impl SleepMethod {
    /// All methods.
    pub const ALL: [Self; 9] = [
        Self::Nanosleep,
        Self::Usleep,
        Self::ClockNanosleepAbs,
        Self::Timerfd,
        Self::Select,
        Self::Poll,
        Self::Epoll,
        Self::Spin,
        Self::Hybrid,
    ];

    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanosleep => "nanosleep",
            Self::Usleep => "usleep",
            Self::ClockNanosleepAbs => "clock_nanosleep-abs",
            Self::Timerfd => "timerfd",
            Self::Select => "select",
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Spin => "spin",
            Self::Hybrid => "hybrid",
        }
    }

    /// Returns the unit of the timeout in the method's system call. The remaining time is rounded
    /// up to a multiple of this unit, which is 1 ns for calls that take a `timespec` and for
    /// methods that read the clock.
    pub const fn unit(self) -> Nanos {
        match self {
            Self::Nanosleep
            | Self::ClockNanosleepAbs
            | Self::Timerfd
            | Self::Spin
            | Self::Hybrid => Nanos(1),
            Self::Usleep | Self::Select => Nanos::from_micros(1),
            Self::Poll | Self::Epoll => Nanos::from_millis(1),
        }
    }

    /// Returns whether the thread ever sleeps.
    pub const fn sleeps(self) -> bool {
        !matches!(self, Self::Spin)
    }

    /// Returns whether the thread's timer slack can delay the wake-up. Timerfds are not subject to
    /// it.
    pub const fn has_slack(self) -> bool {
        !matches!(self, Self::Spin | Self::Timerfd)
    }

    /// Returns how long a loop with this `period` spins before each frame is due. `margin` is the
    /// calibrated margin of [`SleepMethod::Hybrid`]; without it, the result for that method is
    /// `None`.
    pub const fn spin(self, period: Nanos, margin: Option<Nanos>) -> Option<Nanos> {
        match self {
            Self::Spin => Some(period),
            Self::Hybrid => margin,
            _ => Some(Nanos::ZERO),
        }
    }
}

/// Calibration of [`SleepMethod::Hybrid`]: trial sleeps before the loop starts determine how long
/// it spins before each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration;

impl Calibration {
    /// Number of trial sleeps.
    pub const TRIALS: usize = 64;
    /// Requested length of each trial sleep.
    pub const TRIAL: Nanos = Nanos::from_micros(500);
    /// Minimum margin, about as long as one check of the time.
    pub const MIN: Nanos = Nanos::from_micros(5);
    /// Index of the delay used as the margin, in the sorted delays of the trial sleeps. About one
    /// sleep in 32 ends even later.
    const CHOSEN: usize = 61;

    /// Returns the margin for a loop with this `period`, given the delays of the trial sleeps. The
    /// margin is at most half a period, because a loop that needs to spin longer might as well spin
    /// all the time.
    pub fn margin(mut late: [Nanos; Self::TRIALS], period: Nanos) -> Nanos {
        late.sort_unstable();
        late[Self::CHOSEN].max(Self::MIN).min(Nanos(period.0 / 2))
    }
}

/// Rule that determines when a loop's next frame is due.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PaceRule {
    /// The next frame is due one period after the previous frame's work ended. The loop sleeps for
    /// an entire period, so its work makes it slower than its nominal rate.
    Fixed,
    /// The next frame is due one period after the previous frame started. The loop compensates for
    /// the time of its work, but not for late wake-ups, which postpone all later frames.
    Remaining,
    /// Frames are due on a fixed grid: at the start time plus a whole number of periods.
    Deadline,
}

impl PaceRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Remaining, Self::Deadline];

    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Remaining => "remaining",
            Self::Deadline => "deadline",
        }
    }

    /// Returns the start of the period at whose end the frame after `frame` is due.
    pub fn origin(self, frame: &Frame, period: Nanos) -> Nanos {
        match self {
            Self::Fixed => frame.ended,
            Self::Remaining => frame.began,
            Self::Deadline => frame.slot(period),
        }
    }

    /// Returns the due time of the frame after `frame`.
    pub fn next_due(self, frame: &Frame, period: Nanos) -> Nanos {
        self.origin(frame, period) + period
    }
}

/// Error for text that is not one of the allowed words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown value `{text}`: choose {words}")]
pub struct NoSuchWord {
    text: String,
    words: String,
}

fn find<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, NoSuchWord> {
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| NoSuchWord {
        text: text.to_owned(),
        words: all
            .iter()
            .map(|&one| name(one))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

impl FromStr for SleepMethod {
    type Err = NoSuchWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        find(text, &Self::ALL, Self::name)
    }
}

impl FromStr for PaceRule {
    type Err = NoSuchWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        find(text, &Self::ALL, Self::name)
    }
}

impl fmt::Display for SleepMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for PaceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One frame of a loop. Times are on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// When the frame was due: the start of the first slot in which no frame had started yet.
    pub due: Nanos,
    /// Start of the frame's work.
    pub began: Nanos,
    /// End of the frame's work.
    pub ended: Nanos,
    /// CPU time of the frame's work.
    pub cpu: Nanos,
}

impl Frame {
    /// Returns the number of empty slots before this frame, which is the number of whole periods
    /// between its due time and its start.
    pub fn dropped(&self, period: Nanos) -> i64 {
        (self.began - self.due).0.max(0) / period.0.max(1)
    }

    /// Returns the start of the slot in which the frame started.
    pub fn slot(&self, period: Nanos) -> Nanos {
        self.due + Nanos(self.dropped(period) * period.0)
    }
}

/// Returns the default delay above which a frame counts as late: a quarter of the period, but at
/// most 4 ms.
pub fn late_from(period: Nanos) -> Nanos {
    Nanos(period.0 / 4).min(Nanos::from_millis(4))
}

/// A fixed schedule of steps that are due at a constant rate, starting with the first frame. It
/// defines which steps are *overshot*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: Nanos,
    next: Option<Nanos>,
}

impl Schedule {
    /// Returns a schedule that starts with the first frame and has one step every `period`.
    pub const fn new(period: Nanos) -> Self {
        Self { period, next: None }
    }

    /// Makes the first step due at `due` unless the schedule has already started.
    pub fn begin(&mut self, due: Nanos) {
        self.next.get_or_insert(due);
    }

    /// Performs the last step that is due at `now`, and returns the number of earlier steps that
    /// were missed. If no step is due, does nothing and returns `None`.
    pub fn take(&mut self, now: Nanos) -> Option<u64> {
        let due = *self.next.get_or_insert(now);
        if due > now {
            return None;
        }
        let missed = (now - due).0 / self.period.0.max(1);
        self.next = Some(due + Nanos((missed + 1) * self.period.0.max(1)));
        Some(missed.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, PaceRule, Schedule, SleepMethod};
    use crate::Nanos;

    #[test]
    fn names_of_methods_and_rules_parse() {
        for method in SleepMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(json, format!("\"{method}\""));
        }
        for rule in PaceRule::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
        }
        let error = "nap".parse::<PaceRule>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown value `nap`: choose fixed, remaining, deadline"
        );
    }

    #[test]
    fn each_rule_sets_when_the_next_frame_is_due() {
        let frame = Frame {
            due: Nanos(1_000),
            began: Nanos(1_130),
            ended: Nanos(1_150),
            cpu: Nanos(20),
        };
        let next = |rule: PaceRule| rule.next_due(&frame, Nanos(100));
        assert_eq!(next(PaceRule::Fixed), Nanos(1_250));
        assert_eq!(next(PaceRule::Remaining), Nanos(1_230));
        assert_eq!(next(PaceRule::Deadline), Nanos(1_200));
    }

    #[test]
    fn missed_steps_are_counted_against_a_fixed_schedule() {
        let mut schedule = Schedule::new(Nanos(100));
        let frames = [1_000, 1_090, 1_100, 1_199, 1_450, 1_460, 1_500];
        let missed = frames.map(|now| schedule.take(Nanos(now)));
        assert_eq!(
            missed,
            [Some(0), None, Some(0), None, Some(2), None, Some(0)]
        );
        // The schedule has 31 steps/s, but a frame starts only every 35 ms (28.57 frames/s). The
        // loop therefore misses 31 − 28.57 = 2.43 steps/s.
        let mut schedule = Schedule::new(Nanos(32_258_065));
        let missed = (0..2857_i64).filter_map(|k| schedule.take(Nanos(k * 35_000_000)));
        assert_eq!(missed.sum::<u64>(), 242, "in 100 s");
    }

    #[test]
    fn a_late_frame_drops_the_slots_that_started_before_it() {
        let frame = |began| Frame {
            due: Nanos(1_000),
            began: Nanos(began),
            ..Frame::default()
        };
        for (began, dropped, slot) in [
            (990, 0, 1_000),
            (1_000, 0, 1_000),
            (1_099, 0, 1_000),
            (1_100, 1, 1_100),
            (1_357, 3, 1_300),
        ] {
            let frame = frame(began);
            assert_eq!(frame.dropped(Nanos(100)), dropped, "{began}");
            assert_eq!(frame.slot(Nanos(100)), Nanos(slot), "{began}");
        }
    }
}
