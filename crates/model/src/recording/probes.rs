//! Reports on probes and soakers, and on the clock that the probes read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{CounterSource, CounterVerdict};
use crate::pace::SleepMethod;
use crate::policy::PolicyGrant;
use crate::{Cpu, Kind, Nanos, Source};

/// Checks of the counter that the probes read as a clock, and its alignment with `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// Counter that the probes read.
    pub counter: CounterSource,
    /// Measured frequency of the counter, in Hz.
    pub frequency_hz: f64,
    /// Drift of `CLOCK_MONOTONIC` relative to the counter over the recording, in parts per million.
    pub drift_ppm: f64,
    /// Number of times during the check that a reading on one CPU was lower than an earlier reading
    /// on another. A single such reading is enough to distrust the counter.
    pub backwards_steps: u64,
    /// Whether the counter is trusted and, if not, the reasons.
    pub verdict: CounterVerdict,
    /// Shortest time between two counter readings that enclose a reading of `CLOCK_MONOTONIC`.
    #[serde(rename = "bracket_ns")]
    pub bracket: Nanos,
    /// Maximum error of a time converted from the counter to `CLOCK_MONOTONIC`.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
    /// Number of times the two clocks were compared.
    pub anchors: u64,
}

/// Kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// A loop that keeps reading a counter. It records a gap whenever too much time passes between
    /// two readings.
    Spin,
    /// A thread that sleeps until given times and records how late it wakes up.
    Sleep,
}

impl ProbeKind {
    /// Returns the name of the probe, which is also the name of the source of its gaps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
        }
    }

    /// Returns the kind of probe whose gaps have a source called `name`.
    pub fn of_gap(name: &str) -> Self {
        if name == Self::Spin.name() {
            Self::Spin
        } else {
            Self::Sleep
        }
    }

    /// Returns the kind of probe that produced the gaps of `source`; `None` if `source` does not
    /// stand for a probe's gaps.
    pub fn of_gaps(source: &Source) -> Option<Self> {
        (source.kind == Kind::Gap).then(|| Self::of_gap(&source.name))
    }
}

/// Why a probe, a soaker or a paced loop stopped early. Each reason has a stable `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ProbeFailure {
    /// The kernel moved the thread to another CPU.
    Moved {
        /// CPU that the thread was moved to.
        to: Cpu,
    },
    /// The thread did not stop in time, so its results are lost.
    NotStopped {
        /// Time allowed for stopping.
        #[serde(rename = "limit_ns")]
        limit: Nanos,
    },
    /// The kernel rejected the loop's sleep method.
    SleepRefused {
        /// Rejected method.
        method: SleepMethod,
        /// The kernel's error.
        #[serde(alias = "why")]
        reason: String,
    },
    /// The thread failed because of a bug in ticktax.
    Failed,
    /// Another reason.
    Other {
        /// Description.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// Report of a probe on one CPU.
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
    /// For `spin`, the median time that the loop takes per iteration. For `sleep`, the requested
    /// time between wake-ups.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// For `spin`, the minimum length of a recorded gap. For `sleep`, the timer slack in effect.
    #[serde(rename = "threshold_ns")]
    pub threshold: Nanos,
    /// Number of iterations of the loop (`spin`) or of wake-ups (`sleep`).
    #[serde(alias = "turns")]
    pub iterations: u64,
    /// Time when the probe started to measure.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Time when the probe stopped measuring.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why the probe stopped early; `None` if it did not.
    pub ended_early: Option<ProbeFailure>,
}

/// Report of a soaker on one CPU. A soaker is a lowest-priority thread that counts how much work it
/// completes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakReport {
    /// CPU.
    pub cpu: Cpu,
    /// Thread id.
    pub tid: i32,
    /// Requested and granted scheduling policy.
    pub policy: PolicyGrant,
    /// Time the soaker takes per block of work.
    #[serde(flatten)]
    pub block: BlockTimes,
    /// Number of blocks of work completed.
    pub blocks: u64,
    /// Progress of the work: points in time, each with the number of blocks completed by then. Not
    /// stored in files.
    #[serde(skip)]
    pub progress: Vec<(Nanos, u64)>,
    /// Time when the soaker started to work.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Time when the soaker stopped working.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Why the soaker stopped early; `None` if it did not.
    pub ended_early: Option<ProbeFailure>,
}

impl SoakReport {
    /// Returns the CPU time of all completed blocks, computed from the shortest measured time per
    /// block. Longer times were measured while the CPU was disturbed.
    pub fn time(&self) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the product is a time in ns, far below 2^63"
        )]
        Nanos((self.blocks as f64 * self.block.fastest_ns()) as i64)
    }

    /// Returns the CPU time of the blocks completed between `begin` and `end`, computed from the
    /// time per block during the work (`block_fast_ns`). `None` if that time is unknown, or if the
    /// progress at `begin` or `end` is.
    pub fn time_between(&self, begin: Nanos, end: Nanos) -> Option<Nanos> {
        let blocks = self.done_at(end)? - self.done_at(begin)?;
        Some(Nanos(1).times(blocks * self.block.block_fast_ns?))
    }

    /// Returns the number of blocks completed by time `at`, interpolated between recorded values;
    /// `None` if the soaker was not working at that time.
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

/// Time in ns that a soaker takes per block of work on its CPU, measured before, during and after
/// the work. Each value is the 10th percentile of several blocks unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockTimes {
    /// Time per block before the work; 0 if it was not measured.
    pub block_before_ns: f64,
    /// Time per block after the work; 0 if it was not measured.
    pub block_after_ns: f64,
    /// Time per block during the work; `None` if no block was timed then, as in old recordings.
    #[serde(default)]
    pub block_fast_ns: Option<f64>,
    /// Median time per block during the work, including everything that slowed the CPU down.
    #[serde(default)]
    pub block_median_ns: Option<f64>,
}

impl BlockTimes {
    /// Returns the time of an undisturbed block, in ns, which is the shortest of the measured
    /// times.
    pub fn fastest_ns(&self) -> f64 {
        let ends = self.block_before_ns.min(self.block_after_ns);
        self.block_fast_ns.map_or(ends, |during| during.min(ends))
    }

    /// Returns the largest relative difference between the times per block before, during and after
    /// the work. A difference means that the speed of the CPU changed or that a measurement was
    /// disturbed. Returns `None` unless the time was measured both before and after the work.
    pub fn drift(&self) -> Option<f64> {
        let measured = self.block_before_ns > 0.0 && self.block_after_ns > 0.0;
        let slowest = self.block_before_ns.max(self.block_after_ns);
        let slowest = self
            .block_fast_ns
            .map_or(slowest, |during| during.max(slowest));
        measured.then(|| slowest / self.fastest_ns() - 1.0)
    }
}
