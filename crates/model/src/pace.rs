//! Paced loops: one of ticktax's own, or somebody else's, and what became of its frames.
//!
//! # The words
//! - A loop of `r` frames a second has a *slot* every `1/r` seconds; a frame is *due* at the begin
//!   of its slot. What "due" means for a loop that does not keep to a grid is its
//!   [rule](PaceRule).
//! - *Dropped*: a slot in which no frame began. Either the frame before ran into it, so that the
//!   loop cannot keep up, or the loop *slept through* it: it was asleep when the slot began, and
//!   still when the next one did.
//! - *Overshot*: a frame that began more than one tick of the kernel (1/HZ) after it was due.
//! - *Slipped*: a frame that the rate asks for and that was never due, because under a relative
//!   rule each delay puts off all later frames.
//! - Waits are counted from when a frame was due, and a dropped slot waits, too, for the frame that
//!   began at last. Without that a long stall would count once where it delayed many (coordinated
//!   omission).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limitation::Limitation;
use crate::machine::Machine;
use crate::policy::PolicyGrant;
use crate::recording::World;
use crate::{Cpu, CpuList, Nanos};

mod comparison;

pub use comparison::{Choice, Criterion, PaceComparison, PaceVariant};

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
    pub const LEAST: Nanos = Nanos::from_micros(5);
    /// The margin is this one of them, the shortest first: one sleep in 32 may be later still.
    const CHOSEN: usize = 61;

    /// The margin of a loop with this period, by how late each trial ended. At most half a period:
    /// a loop that spins longer might as well do nothing else.
    pub fn margin(mut late: [Nanos; Self::TRIALS], period: Nanos) -> Nanos {
        late.sort_unstable();
        late[Self::CHOSEN].max(Self::LEAST).min(Nanos(period.0 / 2))
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

/// What happened to a paced loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Which world it is of.
    #[serde(default)]
    pub world: World,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// For how long it was watched.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Whose loop.
    pub subject: Subject,
    /// What became of the frames; `None` where nothing repeats, or nothing was seen.
    pub figures: Option<Figures>,
    /// CPU time, by every clock that tells it.
    pub cpu: CpuStatement,
    /// How often it was woken.
    pub wakeups: Option<Wakeups>,
    /// What could not be seen, and why.
    pub limitations: Vec<Limitation>,
    /// What ended it early, if anything did.
    pub ended_early: Option<String>,
}

/// Whose loop it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One that ticktax ran.
    Loop(LoopReport),
    /// A process that was there already, and was only watched.
    Process(ProcessReport),
}

/// A loop that ticktax ran: what it was asked for, and what it got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Frames a second.
    #[serde(rename = "rate_hz")]
    pub rate: f64,
    /// The same as a time, to the ns.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// CPU time of each frame's work.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// How it waited.
    pub sleep: SleepMethod,
    /// When frames were due.
    pub rule: PaceRule,
    /// Where it ran.
    pub cpu: Cpu,
    /// The scheduling policy that it asked for and got.
    pub policy: PolicyGrant,
    /// By how much the kernel may be late with this thread's timers, on purpose.
    #[serde(rename = "timer_slack_ns")]
    pub timer_slack: Option<Nanos>,
    /// How long before a frame is due [`SleepMethod::Hybrid`] begins to spin.
    #[serde(rename = "margin_ns")]
    pub margin: Option<Nanos>,
    /// Frames that were run but not handed over, and are in none of the figures.
    pub frames_lost: u64,
}

/// How a loop of ticktax's own ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopRun {
    /// What it was asked for, and what it got.
    pub report: LoopReport,
    /// For how long it ran.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Its CPU time, by every clock that tells it; its thread's own comes first.
    pub readings: Vec<CpuReading>,
    /// How often it was woken.
    pub wakeups: Option<Wakeups>,
    /// The failure that ended it early, if one did.
    pub error: Option<String>,
}

/// A process that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessReport {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// The thread whose rhythm was taken for the frames', by its place in `threads`.
    pub chosen: Option<usize>,
    /// Its threads that were seen, the strongest rhythm first.
    pub threads: Vec<ThreadReport>,
}

/// A thread of a watched process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// How often it was woken.
    pub wakeups: u64,
    /// How often it was woken on a CPU that idled.
    pub ended_idle: u64,
    /// CPU time of its runs.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// What in it repeats, the strongest first.
    pub rhythms: Vec<RhythmReport>,
    /// Why nothing does, or nothing could be found.
    pub why_none: Option<String>,
}

/// What marks a frame of somebody else's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameMark {
    /// Every wakeup.
    Wakeups,
    /// Wakeups after which the thread worked far longer than usual: it polls the clock in naps.
    LongRuns,
}

/// Something in a thread that repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RhythmReport {
    /// Of which events.
    pub mark: FrameMark,
    /// The period, ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
    /// The lower end of its 95 % interval, ns.
    #[serde(rename = "period_low_ns")]
    pub low: f64,
    /// The upper end of its 95 % interval, ns.
    #[serde(rename = "period_high_ns")]
    pub high: f64,
    /// A bound on the probability that chance shows as much.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
    /// Beats that were seen.
    pub seen: u64,
    /// Beats that there was time for.
    pub expected: u64,
    /// Standard deviation of a wakeup around its grid, or of an interval where each starts anew.
    #[serde(rename = "jitter_ns")]
    pub jitter: Nanos,
    /// Whether each interval starts from the last event, so that delays add up.
    pub rearmed: bool,
    /// How often the phase jumped.
    pub restarts: u32,
    /// Its events' time as a share of the time watched.
    pub share: f64,
}

/// What became of a loop's frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// The period that slots are counted by.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// A frame that begins later than this after it was due is overshot: one tick of the kernel.
    #[serde(rename = "overshot_from_ns")]
    pub overshot_from: Nanos,
    /// Frames that began.
    pub frames: u64,
    /// Frames that the rate asks for from the first one's due time to the last one's begin; `None`
    /// where the rate is not known.
    pub wanted: Option<u64>,
    /// Slots in which no frame began.
    pub dropped: u64,
    /// Those of them that the loop slept through.
    pub slept_through: u64,
    /// Frames that began more than a tick after they were due.
    pub overshot: u64,
    /// Wanted frames that were never due: a relative rule puts off all later frames by each delay,
    /// and [`PaceRule::Fixed`] by each frame's work as well.
    pub slipped: Option<u64>,
    /// Frames a second, from the first one's begin to the last one's; `None` for a single frame.
    pub average_fps: Option<f64>,
    /// How many seconds had how many frames, most frames first; the last, begun second is left out.
    pub fps: Vec<FpsSeconds>,
    /// From when a frame was due to the end of its work; dropped slots included.
    pub frame_time: Option<Distribution>,
    /// From when a frame was due to its begin; dropped slots included.
    pub wait: Option<Distribution>,
    /// From when a frame was due to its begin, where the loop slept until then: the kernel's doing.
    pub wakeup: Option<Distribution>,
    /// From a frame's begin to the end of its work.
    pub busy: Option<Distribution>,
    /// From one frame's begin to the next one's.
    pub interval: Option<Distribution>,
    /// CPU time of a frame's work.
    pub work: Option<Distribution>,
}

/// How many seconds had so many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FpsSeconds {
    /// Frames in a second.
    pub fps: u64,
    /// Seconds of which that is true.
    pub seconds: u64,
}

/// How a number of times is distributed. The least, the mean and the most are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// The shortest.
    #[serde(rename = "min_ns")]
    pub min: Nanos,
    /// Their mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Whether the quantiles are exact; otherwise they are right to ±11 %.
    pub exact: bool,
    /// The quantiles that this many can tell: those that have a 95 % upper bound among them.
    pub quantiles: Vec<Quantile>,
    /// The histogram; empty buckets are left out.
    pub buckets: Vec<Bucket>,
}

impl Distribution {
    /// How many lie above `time` by more than its bucket.
    pub fn beyond(&self, time: Nanos) -> u64 {
        let beyond = |bucket: &&Bucket| bucket.from > time;
        self.buckets
            .iter()
            .filter(beyond)
            .map(|bucket| bucket.count)
            .sum()
    }

    /// The quantile `q`, if there are enough to tell it.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let found = |quantile: &&Quantile| (quantile.q - q).abs() < 1e-9;
        self.quantiles
            .iter()
            .find(found)
            .map(|quantile| quantile.value)
    }
}

/// A quantile of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantile {
    /// The share of the times that lie below.
    pub q: f64,
    /// The time.
    #[serde(rename = "value_ns")]
    pub value: Nanos,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// From this time on.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// To just under this one.
    #[serde(rename = "below_ns")]
    pub below: Nanos,
    /// How many.
    pub count: u64,
}

/// CPU time, told by several clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStatement {
    /// What each clock said, the truest first.
    pub readings: Vec<CpuReading>,
    /// The CPUs that it ran on.
    pub cpus: CpuList,
    /// Whether this kernel's machine-wide figures are sampled at the tick; `None` where it does not
    /// tell.
    pub sampled_at_tick: Option<bool>,
    /// What its rhythm makes of samples at the tick, where its frames keep to phases of it.
    #[serde(default)]
    pub alias: Option<TickAlias>,
}

/// A loop whose frames keep to a few phases of the tick: what samples make of it depends on the
/// moment at which it was started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickAlias {
    /// From one tick to the next.
    #[serde(rename = "tick_ns")]
    pub tick: Nanos,
    /// So many frames …
    pub frames: u32,
    /// … are so many ticks.
    pub ticks: u64,
    /// The share of a CPU that the work of its frames takes, 0 to 1.
    #[serde(rename = "true_share")]
    pub truth: f64,
    /// The least that samples make of that.
    #[serde(rename = "min_share")]
    pub min: f64,
    /// The most.
    #[serde(rename = "max_share")]
    pub max: f64,
}

/// What one clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuReading {
    /// Which.
    pub clock: CpuClock,
    /// CPU time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Within this time.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

/// A clock that tells CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuClock {
    /// `CLOCK_THREAD_CPUTIME_ID`, read by the thread itself.
    Thread,
    /// The sum of the thread's runs, each to the ns, less what interrupted them.
    Runs,
    /// `/proc/PID/task/TID/schedstat`: the scheduler's own sum.
    Schedstat,
    /// User and system time in `/proc/PID/task/TID/stat`, which `top` shows.
    Stat,
    /// The busy time of its CPUs in `/proc/stat`, everybody's together.
    Machine,
}

/// How often a loop was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wakeups {
    /// Within this time.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// How often.
    pub count: u64,
    /// How often an idle CPU had to wake up.
    pub ended_idle: Option<EndedIdle>,
}

/// Wakeups that ended a CPU's idling, which is what costs energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedIdle {
    /// How many.
    pub count: u64,
    /// Whether they are the loop's own. Otherwise it is how often its CPU left an idle state that
    /// saves energy, whoever woke it: an upper bound, but for idling that no sleep of the loop ended.
    pub own: bool,
}

#[cfg(test)]
mod tests {
    use super::{Frame, PaceRule, SleepMethod};
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
