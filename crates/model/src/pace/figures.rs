//! Figures of a paced loop: frames, distributions of times, CPU time according to several clocks,
//! and wake-ups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Bucket;
use crate::{CpuList, Nanos};

/// Frame statistics of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Frame period, which is the length of a slot.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Delay above which a frame's step counts as overshot, if one was requested. By default, a
    /// step is overshot only if no frame started before the next step was due.
    #[serde(rename = "overshot_threshold_ns", alias = "overshot_from_ns")]
    pub overshot_threshold: Option<Nanos>,
    /// Delay above which a frame counts as late.
    #[serde(rename = "late_threshold_ns", alias = "late_from_ns")]
    pub late_threshold: Nanos,
    /// Number of frames that started.
    pub frames: u64,
    /// Number of frames that the rate calls for, from the first frame's due time to the last
    /// frame's start; `None` if the rate is unknown.
    #[serde(alias = "wanted")]
    pub expected: Option<u64>,
    /// Number of slots without the start of a frame.
    pub dropped: u64,
    /// Number of dropped slots that the loop slept through from start to end.
    pub slept_through: u64,
    /// Number of steps of a fixed [`Schedule`](super::Schedule) that no frame reached in time.
    pub overshot: u64,
    /// Number of frames that started more than `late_threshold` after they were due.
    pub late: u64,
    /// Number of frames that the rate calls for but that never came due because the loop's schedule
    /// slipped. Under a relative rule, each delay postpones all later frames. Under
    /// [`PaceRule::Fixed`](super::PaceRule::Fixed), so does the work of each frame.
    pub slipped: Option<u64>,
    /// Average frames per second from the start of the first frame to the start of the last; `None`
    /// if there was only one frame.
    pub average_fps: Option<f64>,
    /// Number of seconds with each frame count, highest count first. The last second is omitted
    /// because it is incomplete.
    pub fps: Vec<FpsSeconds>,
    /// Time from a frame's due time to the end of its work. Dropped slots count as well.
    pub frame_time: Option<Distribution>,
    /// Time from a frame's due time to its start. Dropped slots count as well.
    pub wait: Option<Distribution>,
    /// Time from a frame's due time to its start, for frames preceded by a sleep. This is the delay
    /// that the kernel causes.
    pub wakeup: Option<Distribution>,
    /// Time from a frame's start to the end of its work.
    pub busy: Option<Distribution>,
    /// Time from one frame's start to the next frame's start.
    pub interval: Option<Distribution>,
    /// CPU time of each frame's work.
    pub work: Option<Distribution>,
}

impl Figures {
    /// Returns the number of slots that no frame served in time: dropped slots, slipped slots, and
    /// slots whose frame started late.
    pub fn untimely(&self) -> u64 {
        self.dropped + self.slipped.unwrap_or_default() + self.late
    }

    /// Returns an estimate of how many dropped slots had their frames run late, in a burst. A loop
    /// that is behind runs several frames per wake-up without sleeping in between, but only its
    /// wake-ups are observed. The estimate assumes that each extra frame uses the usual CPU time.
    /// It is 0 if the frames themselves are known, as in ticktax's own loop.
    pub fn caught_up(&self) -> u64 {
        let run_into = self.dropped.saturating_sub(self.slept_through);
        let work = self.work.as_ref().filter(|_| self.expected.is_none());
        let median_work = work.and_then(|work| work.quantile(0.5));
        let (Some(work), Some(median_work)) =
            (work, median_work.filter(|&time| time > Nanos::ZERO))
        else {
            return 0;
        };
        let cpu_time = |slots: u64| median_work.0 as f64 * (work.count + slots) as f64;
        let total = work.mean.0 as f64 * work.count as f64;
        let extra = (0..=run_into).rev().find(|&slots| cpu_time(slots) <= total);
        // If the extra CPU time covers less than half of these slots, the work of the frames
        // probably just varied.
        extra
            .filter(|&extra| 2 * extra >= run_into)
            .unwrap_or_default()
    }
}

/// Number of seconds with a given frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FpsSeconds {
    /// Frames per second.
    pub fps: u64,
    /// Number of seconds with this frame count.
    pub seconds: u64,
}

/// Distribution of a set of times. The minimum, mean and maximum are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Number of times.
    pub count: u64,
    /// Minimum.
    #[serde(rename = "min_ns")]
    pub min: Nanos,
    /// Mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Maximum.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Whether the quantiles are exact. If not, they are accurate to ±11 %.
    pub exact: bool,
    /// Quantiles that the number of values supports: those whose 95 % upper confidence bound is one
    /// of the values.
    pub quantiles: Vec<Quantile>,
    /// Histogram of the times, without empty buckets.
    pub buckets: Vec<Bucket>,
}

impl Distribution {
    /// Returns the number of values in buckets that start above `time`.
    pub fn beyond(&self, time: Nanos) -> u64 {
        let beyond = |bucket: &&Bucket| bucket.from > time;
        self.buckets
            .iter()
            .filter(beyond)
            .map(|bucket| bucket.count)
            .sum()
    }

    /// Returns the `q`-quantile; `None` if there are too few values to estimate it.
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
    /// Share of values that lie below the quantile, 0 to 1.
    pub q: f64,
    /// Value of the quantile.
    #[serde(rename = "value_ns")]
    pub value: Nanos,
}

/// A thread's CPU time according to several clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStatement {
    /// Readings of all available clocks, most accurate first.
    pub readings: Vec<CpuReading>,
    /// CPUs that the thread ran on.
    pub cpus: CpuList,
    /// Whether this kernel determines the CPU times of the entire machine by sampling at the tick;
    /// `None` if unknown.
    pub sampled_at_tick: Option<bool>,
    /// Error that sampling at the tick can cause. Set only if the frames stay at fixed phases of
    /// the tick.
    #[serde(default)]
    pub alias: Option<TickAlias>,
}

/// Aliasing between a loop and the tick. The loop's frames stay at a few phases of the tick, so the
/// sampled CPU time depends on the phase at which the loop started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickAlias {
    /// Tick period.
    #[serde(rename = "tick_ns")]
    pub tick: Nanos,
    /// Number of frames that together take exactly as long as `ticks` ticks.
    pub frames: u32,
    /// Number of ticks that together take exactly as long as `frames` frames.
    pub ticks: u64,
    /// Actual share of a CPU that the frames' work used, 0 to 1.
    #[serde(rename = "true_share")]
    pub truth: f64,
    /// Smallest share of a CPU that sampling can show for this loop, 0 to 1.
    #[serde(rename = "min_share")]
    pub min: f64,
    /// Largest share of a CPU that sampling can show for this loop, 0 to 1.
    #[serde(rename = "max_share")]
    pub max: f64,
}

/// CPU time according to one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuReading {
    /// Clock.
    pub clock: CpuClock,
    /// CPU time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Wall-clock time over which the CPU time was used.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

/// A clock that measures CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuClock {
    /// `CLOCK_THREAD_CPUTIME_ID`, read by the thread itself.
    Thread,
    /// Sum of the thread's on-CPU periods in the trace, accurate to the nanosecond and excluding
    /// interruptions.
    Runs,
    /// `/proc/PID/task/TID/schedstat`, which contains the scheduler's own sum.
    Schedstat,
    /// User and system time in `/proc/PID/task/TID/stat`, which `top` shows.
    Stat,
    /// Busy time in `/proc/stat` of the CPUs that the thread ran on. It includes the time of all
    /// other programs on these CPUs.
    Machine,
}

/// Number of times a loop's thread woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wakeups {
    /// Time over which the wake-ups were counted.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Number of wake-ups.
    pub count: u64,
    /// Number of wake-ups that ended an idle period of a CPU; `None` if unknown.
    #[serde(alias = "ended_idle")]
    pub idle_exits: Option<EndedIdle>,
}

/// Number of wake-ups that ended a CPU's idle period. Each of them costs energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedIdle {
    /// Number of wake-ups that ended an idle period.
    pub count: u64,
    /// Whether `count` contains only the loop's own wake-ups. If not, it is the number of times the
    /// loop's CPU left a power-saving idle state for any reason. That number is an upper bound,
    /// because it includes idle periods that other wake-ups ended.
    #[serde(alias = "own")]
    pub loop_only: bool,
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Figures, Quantile};
    use crate::Nanos;

    /// Returns figures of a loop whose frames usually use 4 ms of CPU time.
    fn figures(frames: u64, dropped: u64, slept_through: u64, mean_work: i64) -> Figures {
        let work = Distribution {
            count: frames,
            min: Nanos(4_000_000),
            mean: Nanos(mean_work),
            max: Nanos(16_000_000),
            exact: true,
            quantiles: vec![Quantile {
                q: 0.5,
                value: Nanos(4_000_000),
            }],
            buckets: Vec::new(),
        };
        Figures {
            period: Nanos(16_666_667),
            overshot_threshold: None,
            late_threshold: Nanos(4_000_000),
            frames,
            expected: None,
            dropped,
            slept_through,
            overshot: dropped,
            late: dropped,
            slipped: None,
            average_fps: Some(55.0),
            fps: Vec::new(),
            frame_time: None,
            wait: None,
            wakeup: None,
            busy: None,
            interval: None,
            work: Some(work),
        }
    }

    #[test]
    fn frames_without_wake_ups_are_inferred_from_cpu_time() {
        // 1600 wake-ups used as much CPU time as 1700 frames usually do, so 100 extra frames ran in
        // bursts.
        let caught_up = figures(1_600, 110, 5, 4_250_000);
        assert_eq!(caught_up.caught_up(), 100);
        // The estimate must not exceed the number of slots that a previous frame ran into.
        assert_eq!(figures(1_600, 90, 5, 4_250_000).caught_up(), 85);
        assert_eq!(figures(1_600, 110, 110, 4_250_000).caught_up(), 0);
        // Each frame used its usual CPU time, so the frames of the dropped slots never ran.
        assert_eq!(figures(1_600, 110, 5, 4_000_000).caught_up(), 0);
        // The extra CPU time is enough for only a few frames, so the work probably just varied.
        assert_eq!(figures(1_600, 110, 5, 4_100_000).caught_up(), 0);
        // The frames of ticktax's own loop are known, so an estimate is unnecessary.
        let own = Figures {
            expected: Some(1_710),
            ..caught_up
        };
        assert_eq!(own.caught_up(), 0);
    }
}
