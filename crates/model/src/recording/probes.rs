//! How probes and soakers ran, and the clock that they were read by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{CounterSource, CounterVerdict};
use crate::pace::SleepMethod;
use crate::policy::PolicyGrant;
use crate::{Cpu, Kind, Nanos, Source};

/// How a counter that a probe reads was checked, and tied to `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// The counter.
    pub counter: CounterSource,
    /// Its measured frequency, in Hz.
    pub frequency_hz: f64,
    /// By how much `CLOCK_MONOTONIC` drifted against it during the recording, in millionths.
    pub drift_ppm: f64,
    /// Steps backwards seen between CPUs when it was checked; one is enough to distrust it.
    pub backwards_steps: u64,
    /// Whether it was trusted, and why not.
    pub verdict: CounterVerdict,
    /// The tightest bracket of a reading of `CLOCK_MONOTONIC` between two of the counter.
    #[serde(rename = "bracket_ns")]
    pub bracket: Nanos,
    /// The most by which an aligned time may be wrong.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
    /// How many times the two were compared.
    pub anchors: u64,
}

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// A loop that reads a counter and notes every gap.
    Spin,
    /// A thread that sleeps to absolute times and notes how late it wakes.
    Sleep,
}

impl ProbeKind {
    /// The word for it; the name of the source of its gaps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
        }
    }

    /// The probe whose gaps have a source of this name.
    pub fn of_gap(name: &str) -> Self {
        if name == Self::Spin.name() {
            Self::Spin
        } else {
            Self::Sleep
        }
    }

    /// Whose gaps `source` is of; `None` where it is of none.
    pub fn of_gaps(source: &Source) -> Option<Self> {
        (source.kind == Kind::Gap).then(|| Self::of_gap(&source.name))
    }
}

/// Why a probe, a soaker or a paced loop stopped before it was told to. Its `id` is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ProbeFailure {
    /// The kernel moved its thread to another CPU.
    Moved {
        /// Where the thread found itself.
        to: Cpu,
    },
    /// Its thread did not come to its end in time, and its figures are lost.
    NotStopped {
        /// How long it was waited for.
        #[serde(rename = "limit_ns")]
        limit: Nanos,
    },
    /// The kernel refused the way of sleeping.
    SleepRefused {
        /// The way.
        method: SleepMethod,
        /// The kernel's reason.
        why: String,
    },
    /// Its thread failed, which is a defect of ticktax.
    Failed,
    /// Anything else.
    Other {
        /// In words.
        why: String,
    },
}

/// How a probe ran on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// Which probe.
    pub probe: ProbeKind,
    /// Where.
    pub cpu: Cpu,
    /// Its thread.
    pub tid: i32,
    /// The scheduling policy that it asked for and got.
    pub policy: PolicyGrant,
    /// `spin`: the median time of one turn of its loop. `sleep`: the interval.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// `spin`: the shortest gap that it notes. `sleep`: the timer slack in force.
    #[serde(rename = "threshold_ns")]
    pub threshold: Nanos,
    /// Turns of the loop, or wake-ups.
    pub turns: u64,
    /// From when it measured.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Until when.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why it ended early, where it did.
    pub ended_early: Option<ProbeFailure>,
}

/// How a soaker ran on one CPU: a thread of the lowest priority that counts the work it gets done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakReport {
    /// Where.
    pub cpu: Cpu,
    /// Its thread.
    pub tid: i32,
    /// The scheduling policy that it asked for and got.
    pub policy: PolicyGrant,
    /// How long a block of work takes.
    #[serde(flatten)]
    pub block: BlockTimes,
    /// Blocks that it got done.
    pub blocks: u64,
    /// How many of them it had done at which times. A recording on disk does without.
    #[serde(skip)]
    pub progress: Vec<(Nanos, u64)>,
    /// From when it worked.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Until when.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why it ended early, where it did.
    pub ended_early: Option<ProbeFailure>,
}

impl SoakReport {
    /// The time that its work takes, by the fastest of the measurements: what slows a measurement down is a
    /// disturbance.
    pub fn time(&self) -> Nanos {
        #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
        Nanos((self.blocks as f64 * self.block.fastest_ns()) as i64)
    }

    /// The time that its work from one moment to another takes, at the speed that its own undisturbed blocks had;
    /// `None` where it is not known how much it had done by then.
    pub fn time_between(&self, begin: Nanos, end: Nanos) -> Option<Nanos> {
        let blocks = self.done_at(end)? - self.done_at(begin)?;
        Some(Nanos(1).times(blocks * self.block.block_fast_ns?))
    }

    /// How many blocks were done at a time, in between two times at which that is known.
    fn done_at(&self, at: Nanos) -> Option<f64> {
        let after = self.progress.partition_point(|(it, _)| *it <= at);
        let (began, before) = *self.progress.get(after.checked_sub(1)?)?;
        let (then, done) = *self.progress.get(after).unwrap_or(&(self.end, self.blocks));
        if at > then || then <= began {
            return None;
        }
        let part = (at - began).share_of(then - began);
        Some(before as f64 + part * (done - before) as f64)
    }
}

/// How long a soaker's block of work takes on its CPU, in ns, by measurements at three times. Each is the time
/// that one block in ten stayed below, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockTimes {
    /// Measured before the soaker's work; 0 where it was not.
    pub block_before_ns: f64,
    /// Measured after it; 0 where it was not.
    pub block_after_ns: f64,
    /// Measured by blocks of the work itself. `None` where none was timed, as in old recordings.
    #[serde(default)]
    pub block_fast_ns: Option<f64>,
    /// The median of those blocks, with all that slowed the CPU down.
    #[serde(default)]
    pub block_median_ns: Option<f64>,
}

impl BlockTimes {
    /// What an undisturbed block takes, in ns: the least of the measurements.
    pub fn fastest_ns(&self) -> f64 {
        let ends = self.block_before_ns.min(self.block_after_ns);
        self.block_fast_ns.map_or(ends, |during| during.min(ends))
    }

    /// By what share of 1 the measurements before, during and after differ at most: how much the CPU's speed changed,
    /// or a measurement was disturbed. `None` where it was not measured before or after.
    pub fn drift(&self) -> Option<f64> {
        let measured = self.block_before_ns > 0.0 && self.block_after_ns > 0.0;
        let slowest = self.block_before_ns.max(self.block_after_ns);
        let slowest = self
            .block_fast_ns
            .map_or(slowest, |during| during.max(slowest));
        measured.then(|| slowest / self.fastest_ns() - 1.0)
    }
}
