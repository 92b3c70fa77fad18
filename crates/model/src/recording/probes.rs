//! Reports about probes and soakers, and about the clock that probes read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{CounterSource, CounterVerdict};
use crate::pace::SleepMethod;
use crate::policy::PolicyGrant;
use crate::{Cpu, Kind, Nanos, Source};

/// Checks of the counter that probes read, and its alignment with `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// Counter that the probes read.
    pub counter: CounterSource,
    /// Measured frequency of the counter, in Hz.
    pub frequency_hz: f64,
    /// Drift of `CLOCK_MONOTONIC` relative to the counter during the recording, in parts per
    /// million.
    pub drift_ppm: f64,
    /// Number of times that the counter stepped backwards between CPUs during the check. One step
    /// is enough to distrust it.
    pub backwards_steps: u64,
    /// Whether the counter is trusted, and why not if it is not.
    pub verdict: CounterVerdict,
    /// Smallest time between two counter readings that enclose a reading of `CLOCK_MONOTONIC`.
    #[serde(rename = "bracket_ns")]
    pub bracket: Nanos,
    /// Maximum error of a time after alignment.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
    /// Number of comparisons of the two clocks.
    pub anchors: u64,
}

/// Kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// A loop that reads a counter and records every gap.
    Spin,
    /// A thread that sleeps until absolute times and records how late it wakes up.
    Sleep,
}

impl ProbeKind {
    /// Name of the probe, which is also the name of the source of its gaps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
        }
    }

    /// The kind of probe whose gap source is called `name`.
    pub fn of_gap(name: &str) -> Self {
        if name == Self::Spin.name() {
            Self::Spin
        } else {
            Self::Sleep
        }
    }

    /// The kind of probe that produced the gaps of `source`; `None` if `source` is not a probe's
    /// gaps.
    pub fn of_gaps(source: &Source) -> Option<Self> {
        (source.kind == Kind::Gap).then(|| Self::of_gap(&source.name))
    }
}

/// Why a probe, soaker or paced loop stopped early. Its `id` is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ProbeFailure {
    /// The kernel moved the thread to another CPU.
    Moved {
        /// New CPU of the thread.
        to: Cpu,
    },
    /// The thread did not stop in time, so its results are lost.
    NotStopped {
        /// Time allowed for stopping.
        #[serde(rename = "limit_ns")]
        limit: Nanos,
    },
    /// The kernel rejected the sleep method.
    SleepRefused {
        /// Rejected method.
        method: SleepMethod,
        /// The kernel's error.
        #[serde(alias = "why")]
        reason: String,
    },
    /// The thread failed, which is a bug in ticktax.
    Failed,
    /// Another reason.
    Other {
        /// Description.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// Results of a probe on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// Kind of probe.
    pub probe: ProbeKind,
    /// CPU.
    pub cpu: Cpu,
    /// Thread id.
    pub tid: i32,
    /// Requested and granted scheduling policy.
    pub policy: PolicyGrant,
    /// For `spin`, the median time per iteration. For `sleep`, the interval between wake-ups.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// For `spin`, the shortest gap that is recorded. For `sleep`, the timer slack in force.
    #[serde(rename = "threshold_ns")]
    pub threshold: Nanos,
    /// Number of iterations or wake-ups.
    #[serde(alias = "turns")]
    pub iterations: u64,
    /// Start of the measurement.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// End of the measurement.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why the probe stopped early, if it did.
    pub ended_early: Option<ProbeFailure>,
}

/// Results of a soaker on one CPU. A soaker is a lowest-priority thread that counts the work that
/// it completes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakReport {
    /// CPU.
    pub cpu: Cpu,
    /// Thread id.
    pub tid: i32,
    /// Requested and granted scheduling policy.
    pub policy: PolicyGrant,
    /// Time per block of work.
    #[serde(flatten)]
    pub block: BlockTimes,
    /// Number of blocks completed.
    pub blocks: u64,
    /// Number of blocks completed at various times. Not stored in files.
    #[serde(skip)]
    pub progress: Vec<(Nanos, u64)>,
    /// Start of the work.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// End of the work.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why the soaker stopped early, if it did.
    pub ended_early: Option<ProbeFailure>,
}

impl SoakReport {
    /// CPU time of the soaker's work, computed from the fastest measured speed, because any slower
    /// measurement was disturbed.
    pub fn time(&self) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the product is a time in ns, far below 2^63"
        )]
        Nanos((self.blocks as f64 * self.block.fastest_ns()) as i64)
    }

    /// CPU time of the soaker's work between `begin` and `end`, computed from the speed of
    /// undisturbed blocks; `None` if its progress at either time is unknown.
    pub fn time_between(&self, begin: Nanos, end: Nanos) -> Option<Nanos> {
        let blocks = self.done_at(end)? - self.done_at(begin)?;
        Some(Nanos(1).times(blocks * self.block.block_fast_ns?))
    }

    /// Number of blocks completed by time `at`, interpolated between recorded values.
    fn done_at(&self, at: Nanos) -> Option<f64> {
        let after = self.progress.partition_point(|(time, _)| *time <= at);
        let (began, before) = *self.progress.get(after.checked_sub(1)?)?;
        let (then, done) = *self.progress.get(after).unwrap_or(&(self.end, self.blocks));
        if at > then || then <= began {
            return None;
        }
        let part = (at - began).share_of(then - began);
        Some(before as f64 + part * (done - before) as f64)
    }
}

/// Time per block of a soaker's work on its CPU, in ns, measured before, during and after the work.
/// Each value is the 10th percentile unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockTimes {
    /// Time per block before the work; 0 if it was not measured.
    pub block_before_ns: f64,
    /// Time per block after the work; 0 if it was not measured.
    pub block_after_ns: f64,
    /// Time per block during the work; `None` if no block was timed, as in old recordings.
    #[serde(default)]
    pub block_fast_ns: Option<f64>,
    /// Median time per block during the work, including everything that slowed the CPU.
    #[serde(default)]
    pub block_median_ns: Option<f64>,
}

impl BlockTimes {
    /// Time of an undisturbed block, in ns, which is the smallest measured value.
    pub fn fastest_ns(&self) -> f64 {
        let ends = self.block_before_ns.min(self.block_after_ns);
        self.block_fast_ns.map_or(ends, |during| during.min(ends))
    }

    /// Largest relative difference between the measurements before, during and after the work. A
    /// difference means that the CPU's speed changed or that a measurement was disturbed. `None`
    /// unless block times were measured both before and after.
    pub fn drift(&self) -> Option<f64> {
        let measured = self.block_before_ns > 0.0 && self.block_after_ns > 0.0;
        let slowest = self.block_before_ns.max(self.block_after_ns);
        let slowest = self
            .block_fast_ns
            .map_or(slowest, |during| during.max(slowest));
        measured.then(|| slowest / self.fastest_ns() - 1.0)
    }
}
