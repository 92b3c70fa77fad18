//! The tick bill: how often the timer tick occurred, and how much CPU time it cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::TickMode;
use crate::statement::Part;
use crate::{Cpu, Intervals, Nanos};

/// Number and cost of the timer ticks in a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickBill {
    /// Data that the bill was computed from, which limits what it contains.
    pub basis: Basis,
    /// Tick frequency set when the kernel was built, in Hz.
    pub hz_configured: Option<u32>,
    /// Resolution of the CPU times that the kernel reports to programs (`USER_HZ`, `AT_CLKTCK`), in
    /// Hz. It is independent of the tick frequency.
    pub user_hz: Option<u32>,
    /// When the tick should stop, according to the machine's settings.
    pub mode: Option<TickMode>,
    /// Boot parameters that affect the tick, verbatim.
    pub parameters: Vec<String>,
    /// Ticks of each CPU.
    pub cpus: Vec<CpuTicks>,
    /// Cost of the ticks; `None` unless their intervals were recorded, individually or as sums.
    pub cost: Option<TickCost>,
    /// Extrapolation to many machines like this one; `None` if it was not requested.
    #[serde(default)]
    pub fleet: Option<Fleet>,
}

impl TickBill {
    /// Returns the number of ticks on all CPUs, and the time over which they were counted.
    pub fn all(&self) -> Ticks {
        Ticks::sum(self.cpus.iter().map(|cpu| cpu.all))
    }
}

/// Data that a tick bill was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The individual intervals in which the tick's timer function ran.
    Spans,
    /// Sums of these intervals over time windows. Figures that depend on the order of events are
    /// unknown.
    Sums,
    /// All interrupts of the local timer, because no timer function was observed. Some of them
    /// might be other timers. Kernels without high-resolution timers have no such function.
    Interrupts,
    /// The kernel's count of local timer interrupts. It includes timers other than the tick, so it
    /// is an upper bound on the number of ticks.
    Counters,
}

/// A number of ticks, with the time over which they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ticks {
    /// Number of ticks.
    pub count: u64,
    /// Time over which the ticks were counted.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl Ticks {
    /// Returns the number of ticks per second; `None` if the time is zero.
    pub fn rate(&self) -> Option<f64> {
        (self.time > Nanos::ZERO).then(|| self.count as f64 / self.time.as_secs_f64())
    }

    /// Adds up the counts and the times.
    pub fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, ticks| Self {
            // Saturate, because a statement from a file can contain arbitrary numbers.
            count: sum.count.saturating_add(ticks.count),
            time: sum.time + ticks.time,
        })
    }
}

/// The ticks of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTicks {
    /// CPU.
    pub cpu: Cpu,
    /// All ticks.
    pub all: Ticks,
    /// Ticks that occurred while a program or the kernel was running.
    pub busy: Option<Ticks>,
    /// Ticks that occurred while one of ticktax's probes kept the CPU from being idle.
    pub probed: Option<Ticks>,
    /// Ticks that occurred while the CPU was idle.
    pub idle: Option<Ticks>,
    /// Frequency of the ticks while the CPU was not idle.
    pub frequency: Option<Frequency>,
    /// Number of times the kernel stopped the tick, according to its own count.
    pub stopped: Option<u64>,
    /// Number of pauses: times when the idle CPU had no tick for at least two tick periods.
    pub pauses: u64,
    /// Number of ticks omitted during these pauses.
    pub saved: u64,
    /// Number of local timer interrupts during the recording, according to the kernel's own count.
    pub interrupts: Option<u64>,
}

/// A measured frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frequency {
    /// Frequency, in Hz.
    #[serde(rename = "rate_hz")]
    pub hz: f64,
    /// Half-width of the 95 % confidence interval, in Hz.
    #[serde(rename = "plus_minus_hz")]
    pub plus_minus: f64,
    /// Number of measured intervals between consecutive ticks.
    pub intervals: u64,
}

/// Cost of the ticks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickCost {
    /// Number and lengths of the ticks. With [`Basis::Sums`], the lengths cover only the tick's
    /// timer function.
    #[serde(flatten)]
    pub ticks: Intervals,
    /// Total time of the tick interrupts, consisting of the tick's timer function and the interrupt
    /// around it. Functions of other timers that ran in the same interrupt are excluded.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Breakdown of `time`, largest first. The parts add up to `time`.
    #[serde(alias = "within")]
    pub parts: Vec<Part>,
    /// Softirqs that ran when a tick's interrupt returned, by name, largest first. Examples are
    /// load balancing, RCU callbacks and expired timers.
    pub softirqs: Vec<Part>,
    /// Cost of kernel entry and exit around a single tick; `None` unless a spin probe measured it.
    #[serde(alias = "around")]
    pub entry_exit: Option<Around>,
    /// CPU time per second that the ticks and their softirqs use, summed over all CPUs. In other
    /// words, the number of cores they keep busy.
    pub cores: Estimate,
}

impl TickCost {
    /// Returns the total time of the softirqs.
    pub fn softirq_time(&self) -> Nanos {
        self.softirqs.iter().map(|part| part.time).sum()
    }
}

/// Cost of kernel entry and exit around a tick, measured in probe gaps that contain only a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Around {
    /// Number of probe gaps that contain only a tick.
    pub count: u64,
    /// Median cost.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// 99th percentile of the cost; `None` with fewer than 299 gaps, which are too few to bound it.
    #[serde(default, rename = "p99_ns")]
    pub p99: Option<Nanos>,
}

/// A number with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Value.
    pub value: f64,
    /// Half-width of the 95 % confidence interval; `None` if there was too little data to compute
    /// it.
    pub plus_minus: Option<f64>,
}

impl Estimate {
    /// Number of seconds per day, for converting cores to CPU seconds per day.
    pub const DAY: f64 = 86_400.0;

    /// Returns the estimate multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            plus_minus: self.plus_minus.map(|half| half * factor),
        }
    }
}

/// Extrapolation from this machine to many guests like it on one host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// Number of guests on the host.
    pub guests: u32,
    /// Cost of the ticks of all guests, in cores of the host.
    pub cores: Estimate,
}

#[cfg(test)]
mod tests {
    use super::Ticks;
    use crate::Nanos;

    #[test]
    fn sums_saturate() {
        let most = Ticks {
            count: u64::MAX,
            time: Nanos(i64::MAX),
        };
        assert_eq!(Ticks::sum([most, most].into_iter()), most);
    }
}
