//! Paced loops: ticktax's own, or another program's, and what became of their frames.
//!
//! # The words
//! - A loop of `r` frames a second has a *slot* every `1/r` seconds; a frame is *due* at the begin
//!   of its slot. What "due" means for a loop that does not keep to a grid is its
//!   [rule](PaceRule).
//! - *Dropped*: a slot in which no frame began. Either the frame before ran into it, so that the
//!   loop cannot keep up, or the loop *slept through* it: it was asleep when the slot began, and
//!   still when the next one did.
//! - *Overshot*: a step of a fixed [schedule](Schedule) that no frame was in time for. A step is due every
//!   period from the first frame on, whatever the loop's rule; a frame does the last step that is due,
//!   and those due before it are overshot. Under [`PaceRule::Deadline`] these are the dropped slots,
//!   under the other rules those that slipped as well. Where a threshold is asked for, a step is overshot, too,
//!   whose frame began later than that. The same holds in cases, `sim`, sweeps and the lab, where the fixed
//!   steps of a program, if it has some, are the schedule.
//! - *Late*: a frame that began more than [`late_from`] after it was due, or than the threshold that was
//!   asked for. Nothing of this depends on the kernel's tick.
//! - *Slipped*: a frame that the rate asks for and that was never due, because under a relative
//!   rule each delay puts off all later frames.
//! - Waits are counted from when a frame was due, and a dropped slot waits, too, for the frame that
//!   began at last. Without that a long stall would count once where it delayed many (coordinated
//!   omission).

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

pub use comparison::{Choice, Criterion, PaceComparison, PaceTurn, PaceVariant};
pub use figures::{
    Bucket, CpuClock, CpuReading, CpuStatement, Distribution, EndedIdle, Figures, FpsSeconds,
    Quantile, TickAlias, Wakeups,
};
pub use rate::{FrameRate, FrameRateError};
pub use rhythm::FrameRhythm;
pub use statement::{
    FrameMark, LoopReport, LoopRun, PaceEnd, PaceStatement, ProcessReport, RhythmReport, Subject,
    ThreadReport,
};
pub use turns::{LoopSpec, LoopTurns, frame_source, turn_of};

/// How a loop waits for its next frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum SleepMethod {
    /// `nanosleep`, for the time that is left.
    #[serde(rename = "nanosleep")]
    Nanosleep,
    /// `usleep`, for the time that is left in whole microseconds, rounded up.
    #[serde(rename = "usleep")]
    Usleep,
    /// `clock_nanosleep` until the time itself (`TIMER_ABSTIME`).
    #[serde(rename = "clock_nanosleep-abs")]
    ClockNanosleepAbs,
    /// A `timerfd` set to the time itself, and a blocking `read` of it.
    #[serde(rename = "timerfd")]
    Timerfd,
    /// `select` on nothing, with the time that is left, in whole microseconds, rounded up.
    #[serde(rename = "select")]
    Select,
    /// `poll` on nothing, with the time that is left in whole milliseconds, rounded up.
    #[serde(rename = "poll")]
    Poll,
    /// `epoll_wait` on nothing, with the time that is left in whole milliseconds, rounded up.
    #[serde(rename = "epoll")]
    Epoll,
    /// No sleep: the clock is read until it is time.
    #[serde(rename = "spin")]
    Spin,
    /// `clock_nanosleep` until a calibrated margin before the time, then as [`SleepMethod::Spin`].
    #[serde(rename = "hybrid")]
    Hybrid,
}

impl SleepMethod {
    /// Every method.
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

    /// The word for it, as people type it.
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

    /// The time that its system call counts in: what is left of the wait is rounded up to it. 1 ns
    /// for those that take a `timespec`, and for what reads the clock.
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

    /// Whether its thread sleeps at all.
    pub const fn sleeps(self) -> bool {
        !matches!(self, Self::Spin)
    }

    /// Whether the kernel may be late with it by the thread's timer slack: a timerfd has none.
    pub const fn has_slack(self) -> bool {
        !matches!(self, Self::Spin | Self::Timerfd)
    }

    /// How long before a frame of a loop with this period is due it begins to spin, where `margin`
    /// is what a [`SleepMethod::Hybrid`] was calibrated to; `None` for a hybrid without one.
    pub const fn spin(self, period: Nanos, margin: Option<Nanos>) -> Option<Nanos> {
        match self {
            Self::Spin => Some(period),
            Self::Hybrid => margin,
            _ => Some(Nanos::ZERO),
        }
    }
}

/// How a [`SleepMethod::Hybrid`] finds out how long it has to spin, before its loop begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration;

impl Calibration {
    /// Sleeps that the margin is taken from.
    pub const TRIALS: usize = 64;
    /// How long each is asked to be.
    pub const TRIAL: Nanos = Nanos::from_micros(500);
    /// A margin is never shorter: it takes as long to see that it is time.
    pub const MIN: Nanos = Nanos::from_micros(5);
    /// The margin is this one of them, the shortest first: one sleep in 32 may be later still.
    const CHOSEN: usize = 61;

    /// The margin of a loop with this period, by how late each trial ended. At most half a period:
    /// a loop that spins longer might as well do nothing else.
    pub fn margin(mut late: [Nanos; Self::TRIALS], period: Nanos) -> Nanos {
        late.sort_unstable();
        late[Self::CHOSEN].max(Self::MIN).min(Nanos(period.0 / 2))
    }
}

/// When the next frame of a loop is due.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PaceRule {
    /// A whole period after the work of the last one was done: the loop sleeps the period, and so
    /// is slower than its rate by its work.
    Fixed,
    /// A period after the last one *began*: what the work took is made up for, a late wakeup is
    /// not, and puts off all later frames.
    Remaining,
    /// On a grid: the first moment plus a whole number of periods, whatever happened.
    Deadline,
}

impl PaceRule {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Remaining, Self::Deadline];

    /// The word for it, as people type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Remaining => "remaining",
            Self::Deadline => "deadline",
        }
    }

    /// The moment of a frame that the next one's period counts from.
    pub fn origin(self, frame: &Frame, period: Nanos) -> Nanos {
        match self {
            Self::Fixed => frame.ended,
            Self::Remaining => frame.began,
            Self::Deadline => frame.slot(period),
        }
    }

    /// When the frame after `frame` is due.
    pub fn next_due(self, frame: &Frame, period: Nanos) -> Nanos {
        self.origin(frame, period) + period
    }
}

/// Why a text is not one of a few words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is none of {words}")]
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

/// One frame of a loop; its times are on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// When it was due: the begin of the first slot that had no frame yet.
    pub due: Nanos,
    /// When it began.
    pub began: Nanos,
    /// When its work was done.
    pub ended: Nanos,
    /// CPU time of its work.
    pub cpu: Nanos,
}

impl Frame {
    /// Slots that had begun before this frame did and got none: whole periods from `due` on.
    pub fn dropped(&self, period: Nanos) -> i64 {
        (self.began - self.due).0.max(0) / period.0.max(1)
    }

    /// The begin of the slot that it began in.
    pub fn slot(&self, period: Nanos) -> Nanos {
        self.due + Nanos(self.dropped(period) * period.0)
    }
}

/// A frame of a loop of this period is late from here on: a quarter of the period, at most 4 ms.
pub fn late_from(period: Nanos) -> Nanos {
    Nanos(period.0 / 4).min(Nanos::from_millis(4))
}

/// Steps that are due at a fixed rate from the first frame on: what *overshot* is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: Nanos,
    next: Option<Nanos>,
}

impl Schedule {
    /// A step every `period`, the first when the first frame is.
    pub const fn new(period: Nanos) -> Self {
        Self { period, next: None }
    }

    /// The first step is due at `due`, unless there was one.
    pub fn begin(&mut self, due: Nanos) {
        self.next.get_or_insert(due);
    }

    /// A frame begins at `now`: it does the last step that is due, and those before it were missed, of
    /// which this is the number. `None` where no step is due.
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
    fn words_read_back() {
        for method in SleepMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(json, format!("\"{method}\""));
        }
        for rule in PaceRule::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
        }
        let error = "nap".parse::<PaceRule>().unwrap_err().to_string();
        assert_eq!(error, "`nap` is none of fixed, remaining, deadline");
    }

    #[test]
    fn the_next_frame_is_due_by_the_rule() {
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
    fn steps_are_missed_against_a_schedule_that_does_not_move() {
        let mut schedule = Schedule::new(Nanos(100));
        let frames = [1_000, 1_090, 1_100, 1_199, 1_450, 1_460, 1_500];
        let missed = frames.map(|now| schedule.take(Nanos(now)));
        assert_eq!(
            missed,
            [Some(0), None, Some(0), None, Some(2), None, Some(0)]
        );
        // A loop of 31 steps/s whose frames come every 35 ms misses 31 - 28.57 a second.
        let mut schedule = Schedule::new(Nanos(32_258_065));
        let missed = (0..2857_i64).filter_map(|k| schedule.take(Nanos(k * 35_000_000)));
        assert_eq!(missed.sum::<u64>(), 242, "in 100 s");
    }

    #[test]
    fn a_late_frame_leaves_out_the_slots_that_began_before_it() {
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
