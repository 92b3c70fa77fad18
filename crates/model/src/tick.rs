//! The tick's bill: how often the timer's tick came, what each cost, and what that makes a day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::TickMode;
use crate::statement::Part;
use crate::{Cpu, Intervals, Nanos};

/// What the timer's tick did and cost during a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickBill {
    /// What it was made from, and so what it can tell.
    pub basis: Basis,
    /// Frequency that the kernel was built for, in Hz.
    pub hz_configured: Option<u32>,
    /// Frequency in which the kernel tells programs of CPU time (`USER_HZ`, `AT_CLKTCK`), in Hz.
    /// It says nothing about the tick.
    pub user_hz: Option<u32>,
    /// How the tick behaves by the machine's settings.
    pub mode: Option<TickMode>,
    /// The boot parameters that concern the tick, as they were typed.
    pub parameters: Vec<String>,
    /// What was counted on each CPU.
    pub cpus: Vec<CpuTicks>,
    /// What the ticks cost, where single intervals or sums of them were seen.
    pub cost: Option<TickCost>,
    /// What it makes for many machines like this one, where that was asked for.
    #[serde(default)]
    pub fleet: Option<Fleet>,
}

impl TickBill {
    /// Ticks on all CPUs, and the time over which they were counted.
    pub fn all(&self) -> Ticks {
        Ticks::sum(self.cpus.iter().map(|cpu| cpu.all))
    }
}

/// What a bill was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The single intervals of the tick's own timer function.
    Spans,
    /// Sums of these over windows: nothing that needs the order of two events is known.
    Sums,
    /// Every interrupt of the local timer, since no timer function was seen (without
    /// high-resolution timers there is none): some may have been no tick.
    Interrupts,
    /// The kernel's count of the local timer's interrupts: other timers' are among them, so the
    /// ticks are at most so many.
    Counters,
}

/// A number of ticks, and the time in which they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ticks {
    /// How many.
    pub count: u64,
    /// In how much time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl Ticks {
    /// Ticks a second; `None` where there was no time.
    pub fn rate(&self) -> Option<f64> {
        (self.time > Nanos::ZERO).then(|| self.count as f64 / self.time.as_secs_f64())
    }

    /// All of these together.
    pub fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, ticks| Self {
            // A statement in a file can hold any number.
            count: sum.count.saturating_add(ticks.count),
            time: sum.time + ticks.time,
        })
    }
}

/// The ticks of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTicks {
    /// Which CPU.
    pub cpu: Cpu,
    /// All of them.
    pub all: Ticks,
    /// Those that came while a program or the kernel ran.
    pub busy: Option<Ticks>,
    /// Those that came while a probe of ticktax kept the CPU from idling.
    pub probed: Option<Ticks>,
    /// Those that came while there was nothing to run.
    pub idle: Option<Ticks>,
    /// How fast they followed each other while the CPU did not idle.
    pub frequency: Option<Frequency>,
    /// How often the kernel stopped the tick, by its own account.
    pub stopped: Option<u64>,
    /// Pauses of at least two ticks in which the CPU idled.
    pub pauses: u64,
    /// The ticks that these pauses saved.
    pub saved: u64,
    /// By how much the kernel's count of the local timer's interrupts grew.
    pub interrupts: Option<u64>,
}

/// A measured frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frequency {
    /// In Hz.
    #[serde(rename = "rate_hz")]
    pub hz: f64,
    /// Half the interval that holds the truth in 95 of 100 recordings, in Hz.
    #[serde(rename = "plus_minus_hz")]
    pub plus_minus: f64,
    /// From how many intervals between two ticks.
    pub intervals: u64,
}

/// What the ticks cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickCost {
    /// How many ticks, and how long. Of [`Basis::Sums`] the lengths are of the tick's function alone.
    #[serde(flatten)]
    pub ticks: Intervals,
    /// The time of their interrupts: the tick's function and the interrupt around it, without
    /// other timers' functions in the same interrupt.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// What ran within the interrupt, largest first; sums to `time`.
    pub within: Vec<Part>,
    /// Softirqs that ran as the interrupt returned, by name, largest first: the scheduler's
    /// balancing, RCU's callbacks, timers that were due.
    pub softirqs: Vec<Part>,
    /// Getting into and out of the kernel, as a spinning probe saw it around single ticks.
    pub around: Option<Around>,
    /// The time of the ticks and of these softirqs, in seconds a second of the machine, all CPUs
    /// together: the number of cores that they keep busy.
    pub cores: Estimate,
}

impl TickCost {
    /// The time of the softirqs.
    pub fn softirq_time(&self) -> Nanos {
        self.softirqs.iter().map(|part| part.time).sum()
    }
}

/// Getting into and out of the kernel around ticks that had a gap of the probe for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Around {
    /// How many such gaps.
    pub count: u64,
    /// The median.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// The time that 99 of 100 stay below; `None` of too few to tell (299).
    #[serde(default, rename = "p99_ns")]
    pub p99: Option<Nanos>,
}

/// A number with the interval that holds the truth in 95 of 100 recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// The interval's half; `None` where there was too little to tell it.
    pub plus_minus: Option<f64>,
}

impl Estimate {
    /// Seconds in a day, which turn cores into CPU seconds a day.
    pub const DAY: f64 = 86_400.0;

    /// This, `factor` times.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            plus_minus: self.plus_minus.map(|half| half * factor),
        }
    }
}

/// An extrapolation to many machines like this one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// How many guests there are on a host.
    pub guests: u32,
    /// What the ticks of all of them cost, in cores of the host.
    pub cores: Estimate,
}

#[cfg(test)]
mod tests {
    use super::Ticks;
    use crate::Nanos;

    #[test]
    fn sums_of_any_numbers_do_not_overflow() {
        let most = Ticks {
            count: u64::MAX,
            time: Nanos(i64::MAX),
        };
        assert_eq!(Ticks::sum([most, most].into_iter()), most);
    }
}
