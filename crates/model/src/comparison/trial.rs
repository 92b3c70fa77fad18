//! Trials: A/B tests of settings, on a command or on a running process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arm, FailIfResult, Metric};
use crate::Nanos;
use crate::knob::UndoneSetting;
use crate::machine::Machine;

/// The plan of a trial and its measurements, before they are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Arms. There are at least two, and all others are compared with the first. Their figures are
    /// not computed yet.
    pub arms: Vec<Arm>,
    /// Metrics measured in each run.
    pub metrics: Vec<Metric>,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    pub began_unix: i64,
    /// Everything else that the document of the trial contains.
    pub record: TrialRecord,
}

/// The plan of a trial, its runs, and what happened after the last run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRecord {
    /// Subject of the trial. It is either a command with its arguments, which is run in each arm,
    /// or a process that existed already and was watched.
    pub subject: String,
    /// Number and order of the runs.
    pub design: Design,
    /// All runs, in chronological order.
    pub runs: Vec<TrialRun>,
    /// Whether the trial was stopped before its last block.
    pub interrupted: bool,
    /// Results of the conditions given with `--fail-if`, for every arm except the first.
    pub fail_if: Vec<FailIfResult>,
    /// Result of restoring each setting that was changed, after the last run.
    pub restored: Vec<UndoneSetting>,
}

/// The design of a trial: the number and the order of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Number of blocks. Each block contains two runs of every arm, in mirrored order (`A B B A`),
    /// so that all arms are affected equally if the machine slows down steadily.
    pub blocks: u64,
    /// Seed for the random order of the arms in each block.
    pub seed: u64,
    /// Number of warm-up runs in each arm.
    pub warm_ups: u64,
    /// Number of consecutive runs of the first arm before the first block. They measure how much
    /// its values vary if nothing is changed.
    pub noise_runs: u64,
    /// Time between a change of settings and the next run.
    #[serde(rename = "settle_ns")]
    pub settle: Nanos,
    /// Largest effect that still counts as no difference, as a share of the first arm's value.
    #[serde(rename = "difference_share")]
    pub difference: f64,
}

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunPurpose {
    /// The run fills caches, and its results are discarded.
    WarmUp,
    /// The run measures how much the values of the first arm vary if nothing is changed.
    Noise,
    /// The run measures an arm, which is then compared with the other arms.
    Measured,
}

/// One run of the command or one observation of the process, in one arm of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRun {
    /// Purpose of the run.
    pub purpose: RunPurpose,
    /// Number of the block, from 0. It is also 0 for runs before the first block.
    pub block: u64,
    /// Position of the run in its block, from 0. For a run before the first block, its position
    /// among the runs that have the same purpose.
    pub position: u64,
    /// Index of the arm in the trial's list of arms.
    pub arm: usize,
    /// Start of the run, relative to the start of the trial.
    #[serde(rename = "began_ns")]
    pub began: Nanos,
    /// Whether the command succeeded. The values of failed runs are stored but not compared.
    pub succeeded: bool,
    /// Value of each metric, in the same order and units as the trial's list of metrics; `None` if
    /// it could not be measured.
    pub values: Vec<Option<f64>>,
}
