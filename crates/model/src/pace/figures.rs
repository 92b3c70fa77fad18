//! The figures of a paced loop: frames, distributions of times, CPU time by every clock, wake-ups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuList, Nanos};

/// What became of a loop's frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// The period that slots are counted by.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// How late after it is due a step's frame may begin before the step is overshot, where that was
    /// asked for; else it is overshot where no frame began before the next step was due.
    #[serde(rename = "overshot_from_ns")]
    pub overshot_from: Option<Nanos>,
    /// A frame that begins later than this after it was due is late.
    #[serde(rename = "late_from_ns")]
    pub late_from: Nanos,
    /// Frames that began.
    pub frames: u64,
    /// Frames that the rate asks for from the first one's due time to the last one's begin; `None`
    /// where the rate is not known.
    pub wanted: Option<u64>,
    /// Slots in which no frame began.
    pub dropped: u64,
    /// Those of them that the loop slept through.
    pub slept_through: u64,
    /// Steps of a fixed schedule that no frame was in time for ([`Schedule`](super::Schedule)).
    pub overshot: u64,
    /// Frames that began more than `late_from` after they were due.
    pub late: u64,
    /// Wanted frames that were never due: a relative rule puts off all later frames by each delay,
    /// and [`PaceRule::Fixed`](super::PaceRule::Fixed) by each frame's work as well.
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

impl Figures {
    /// Slots without a frame in time: dropped, slipped, or begun late.
    pub fn untimely(&self) -> u64 {
        self.dropped + self.slipped.unwrap_or_default() + self.late
    }

    /// Dropped slots whose frames may have been made all the same, late: a loop that is behind and does not
    /// wait makes several frames in one wake-up, and only wake-ups are seen. Told where the CPU time is that of
    /// so many more frames; 0 where frames themselves are known.
    pub fn caught_up(&self) -> u64 {
        let run_into = self.dropped.saturating_sub(self.slept_through);
        let work = self.work.as_ref().filter(|_| self.wanted.is_none());
        let usual = work.and_then(|work| work.quantile(0.5));
        let (Some(work), Some(usual)) = (work, usual.filter(|&usual| usual > Nanos::ZERO)) else {
            return 0;
        };
        let frames = |slots: u64| usual.0 as f64 * (work.count + slots) as f64;
        let all = work.mean.0 as f64 * work.count as f64;
        let extra = (0..=run_into).rev().find(|&slots| frames(slots) <= all);
        // Less than half of them would be work that varies.
        extra
            .filter(|&extra| 2 * extra >= run_into)
            .unwrap_or_default()
    }
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
    use super::{Distribution, Figures, Quantile};
    use crate::Nanos;

    /// A loop whose frames usually work for 4 ms.
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
            overshot_from: None,
            late_from: Nanos(4_000_000),
            frames,
            wanted: None,
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
    fn frames_without_a_wake_up_show_by_their_cpu_time() {
        // 1600 wake-ups with the work of 1700 frames.
        let caught_up = figures(1_600, 110, 5, 4_250_000);
        assert_eq!(caught_up.caught_up(), 100);
        // No more than were run into.
        assert_eq!(figures(1_600, 90, 5, 4_250_000).caught_up(), 85);
        assert_eq!(figures(1_600, 110, 110, 4_250_000).caught_up(), 0);
        // Each worked as ever: the slots were skipped.
        assert_eq!(figures(1_600, 110, 5, 4_000_000).caught_up(), 0);
        // The work of a few more is work that varies.
        assert_eq!(figures(1_600, 110, 5, 4_100_000).caught_up(), 0);
        // A loop of our own says which frames there were.
        let own = Figures {
            wanted: Some(1_710),
            ..caught_up
        };
        assert_eq!(own.caught_up(), 0);
    }
}
