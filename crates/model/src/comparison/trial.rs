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
    /// The arms, at least two. All others are compared with the first. Their figures are not
    /// computed yet.
    pub arms: Vec<Arm>,
    /// Metrics measured in each run.
    pub metrics: Vec<Metric>,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    pub began_unix: i64,
    /// Everything else in the trial's document.
    pub record: TrialRecord,
}

/// The plan of a trial, its runs, and what happened after the last run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRecord {
    /// Subject of the trial: either a command with its arguments, run in each arm, or an existing
    /// process that was watched.
    pub subject: String,
    /// Number and order of the runs.
    pub design: Design,
    /// All runs, in chronological order.
    pub runs: Vec<TrialRun>,
    /// Whether the trial was stopped before its last block.
    pub interrupted: bool,
    /// Results of the conditions given with `--fail-if`, for every arm except the first.
    pub fail_if: Vec<FailIfResult>,
    /// Outcome of restoring each changed setting, after the last run.
    pub restored: Vec<UndoneSetting>,
}

/// The design of a trial: how many runs it has, and in what order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Number of blocks. Each block contains two runs of every arm, in mirrored order (`A B B A`),
    /// so a machine that slows down steadily affects all arms equally.
    pub blocks: u64,
    /// Seed for the random order of the arms in each block.
    pub seed: u64,
    /// Number of warm-up runs in each arm.
    pub warm_ups: u64,
    /// Number of consecutive runs of the first arm before the first block. They show how much its
    /// values vary when nothing is changed.
    pub noise_runs: u64,
    /// Pause between a change of settings and the next run.
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
    /// The run measures how much the first arm's values vary when nothing is changed.
    Noise,
    /// The run measures an arm for comparison with the others.
    Measured,
}

/// One run of the command or one observation of the process, in one arm of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRun {
    /// Purpose of the run.
    pub purpose: RunPurpose,
    /// Number of the block, from 0. Runs before the first block also have 0.
    pub block: u64,
    /// Position of the run in its block, from 0. Before the first block, its position among the
    /// runs with the same purpose.
    pub position: u64,
    /// Index of the arm in the trial's list of arms.
    pub arm: usize,
    /// Start of the run, relative to the start of the trial.
    #[serde(rename = "began_ns")]
    pub began: Nanos,
    /// Whether the command succeeded. The values of failed runs are stored but not compared.
    pub succeeded: bool,
    /// Value of each metric, in the order and units of the trial's list of metrics; `None` if it
    /// could not be measured.
    pub values: Vec<Option<f64>>,
}
