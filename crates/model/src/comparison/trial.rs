//! Trials: A/B tests of settings, on a command or on a running process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arm, Contrast, FailIfResult, Metric, Scale};
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
    /// Resources that were measured in each run, to explain the verdict. They do not decide it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Metric>,
    /// Use of these resources in every arm except the first, compared with the first arm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ResourceEffect>,
    /// Whether a signal stopped the trial before its last block.
    pub interrupted: bool,
    /// Why the trial ended before its last block, if it was not interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedEarly>,
    /// Results of the conditions given with `--fail-if`, for every arm except the first.
    pub fail_if: Vec<FailIfResult>,
    /// Outcome of restoring each changed setting, after the last run.
    pub restored: Vec<UndoneSetting>,
}

/// An arm's use of a resource, compared with the first arm's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceEffect {
    /// Index of the arm in the trial's list of arms.
    pub arm: usize,
    /// The resource.
    pub resource: Metric,
    /// Mean use per run in the first arm and in this arm; `None` if it was not measured.
    pub values: [Option<f64>; 2],
    /// Unit of the difference.
    pub scale: Scale,
    /// The difference, and the conclusion. The probability is corrected for all resources and arms.
    pub contrast: Contrast,
}

/// Why a trial ended before its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoppedEarly {
    /// Every metric of every arm had a verdict.
    Certain,
    /// The time given with `--max-time` was over.
    MaxTime,
}

/// The design of a trial: how many runs it has, and in what order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Number of blocks. Each block contains two runs of every arm, in mirrored order (`A B B A`),
    /// so a machine that slows down steadily affects all arms equally.
    pub blocks: u64,
    /// Number of planned looks at the results. The trial ends at the first look at which every
    /// verdict is certain. Each look may be wrong with an equal part of the probability of a false
    /// verdict, so the number of looks does not increase that probability. It is 1 if the trial
    /// looks only after its last block.
    #[serde(default = "one_look")]
    pub looks: u64,
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

const fn one_look() -> u64 {
    1
}

impl Design {
    /// Returns whether the trial looks at its results after this number of blocks. The looks are at
    /// equal distances.
    pub fn is_look(&self, blocks: u64) -> bool {
        (1..=self.looks).any(|look| (look * self.blocks).div_ceil(self.looks) == blocks)
    }
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
    /// Use of each resource, in the order of the trial's list of resources; `None` if it could not
    /// be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Option<f64>>,
}

#[cfg(test)]
mod tests {
    use super::Design;
    use crate::Nanos;

    #[test]
    fn looks_are_at_equal_distances_and_the_last_is_at_the_end() {
        let looks = |blocks, looks| -> Vec<u64> {
            let design = Design {
                blocks,
                looks,
                seed: 0,
                warm_ups: 0,
                noise_runs: 0,
                settle: Nanos::ZERO,
                difference: 0.05,
            };
            (1..=blocks)
                .filter(|block| design.is_look(*block))
                .collect()
        };
        assert_eq!(looks(50, 5), [10, 20, 30, 40, 50]);
        assert_eq!(looks(7, 3), [3, 5, 7]);
        assert_eq!(looks(10, 1), [10]);
        // More looks than blocks are possible: one after each block.
        assert_eq!(looks(2, 5), [1, 2]);
    }
}
