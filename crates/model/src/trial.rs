//! Trials: A/B tests of settings, on a command or on a running process.
//!
//! A [`Trial`] contains the plan and the measurements. A [`TrialStatement`] adds the conclusions. A
//! [`NumbersComparison`] compares two lists of numbers from another tool with the same methods.

mod comparison;
mod fail_if;
mod numbers;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::knob::UndoneSetting;
use crate::machine::Machine;

pub use comparison::{ArmFigures, Check, Comparison, Contrast, Effect, Predicted, Scale, Verdict};
pub use fail_if::{Bound, FailIf, FailIfError, FailIfResult, Outcome, Relation};
pub use numbers::{Numbers, NumbersComparison};

/// The plan of a trial, and its measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Version of ticktax that ran the trial.
    pub tool_version: String,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Subject of the trial. It is either a command with its arguments, which is run in each arm,
    /// or a process that existed already and was watched.
    pub subject: String,
    /// Arms, that is, sets of settings. There are at least two, and all others are compared with
    /// the first.
    pub arms: Vec<Arm>,
    /// Metrics measured in each run.
    pub metrics: Vec<Metric>,
    /// Number and order of the runs.
    pub design: Design,
    /// All runs, in chronological order.
    pub runs: Vec<TrialRun>,
    /// Whether the trial was stopped before its last block.
    pub interrupted: bool,
}

/// An arm of a trial: one of the sets of settings that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Label of the arm: `A`, `B`, ….
    pub label: String,
    /// Settings that are changed for this arm.
    pub settings: Vec<ArmSetting>,
}

/// A setting that is changed for an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSetting {
    /// Name of the setting.
    pub knob: String,
    /// Object that the setting belongs to, in the same format as in [`UndoneSetting`].
    pub target: String,
    /// Value that the arm sets.
    pub value: String,
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

/// A quantity that is measured in each run of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Name of the metric on the command line, such as `time`.
    pub id: String,
    /// Unit of the metric's values.
    pub unit: Unit,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// Source of the metric's values.
    pub origin: Origin,
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Seconds. Some other tools use this unit.
    S,
    /// A share, 0 to 1.
    Share,
    /// Events per second.
    Hz,
    /// Events per minute.
    PerMinute,
    /// No unit, or an unknown unit.
    None,
}

/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower values are better. This applies to times and losses.
    Lower,
    /// Higher values are better. This applies to rates.
    Higher,
    /// Unknown.
    Unknown,
}

impl Better {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Lower, Self::Higher, Self::Unknown];

    /// Returns the kinds of metrics that have this direction, for use in help texts.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lower => "Lower is better, for example times and losses",
            Self::Higher => "Higher is better, for example rates",
            Self::Unknown => "Report differences without judging them",
        }
    }

    /// Returns the name of the direction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Unknown => "unknown",
        }
    }
}

/// Source of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The run time of the command, as measured by the process that waits for it.
    Command,
    /// An audit of the command or the process.
    Audit,
    /// A file that contains numbers.
    File,
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

/// Success rate of an arm's runs, compared with the first arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSuccess {
    /// Index of the arm in the trial's list of arms.
    pub arm: usize,
    /// Number of runs of this arm in all blocks.
    pub runs: u64,
    /// Number of these runs that succeeded.
    pub succeeded: u64,
    /// Probability that chance alone makes the success rates of this arm and the first arm differ
    /// at least this much (Fisher's exact test, two-sided). `None` for the first arm, and `None` if
    /// all runs succeeded.
    #[serde(rename = "chance_probability")]
    pub chance: Option<f64>,
}

/// A trial, with the conclusions drawn from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStatement {
    /// Plan and measurements.
    #[serde(flatten)]
    pub trial: Trial,
    /// Number of successful runs in each arm, in the order of the arms.
    pub successes: Vec<ArmSuccess>,
    /// Comparisons of every other arm with the first, sorted by arm and then by metric.
    pub comparisons: Vec<Comparison>,
    /// Results of the conditions given with `--fail-if`, for every arm except the first.
    pub fail_if: Vec<FailIfResult>,
    /// Result of restoring each setting that was changed, after the last run.
    pub restored: Vec<UndoneSetting>,
}
