//! Trials: A/B tests of settings on a command or a running process.
//!
//! A [`Trial`] contains the plan and the measurements. A [`TrialStatement`] adds the conclusions.
//! [`NumbersComparison`] compares two lists of numbers from another tool in the same way.

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

/// The plan and the measurements of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Version of ticktax that ran the trial.
    pub tool_version: String,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Test subject: a command with its arguments, run under each arm, or an existing process that
    /// was watched.
    pub subject: String,
    /// Arms: sets of settings, at least two. All others are compared with the first.
    pub arms: Vec<Arm>,
    /// Metrics measured in each run.
    pub metrics: Vec<Metric>,
    /// Design of the trial.
    pub design: Design,
    /// All runs, in time order.
    pub runs: Vec<TrialRun>,
    /// Whether the trial was stopped before its last block.
    pub interrupted: bool,
}

/// An arm: one of the sets of settings being compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Label: `A`, `B`, ….
    pub label: String,
    /// Settings that the arm changes.
    pub settings: Vec<ArmSetting>,
}

/// One setting of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSetting {
    /// Name of the setting.
    pub knob: String,
    /// Object that the setting belongs to, named as in [`UndoneSetting`].
    pub target: String,
    /// Value that the arm sets.
    pub value: String,
}

/// The design of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Number of blocks. Each block contains every arm twice, in mirrored order (`A B B A`). A
    /// machine that slows down steadily therefore affects all arms equally.
    pub blocks: u64,
    /// Seed for the random order of the arms in each block.
    pub seed: u64,
    /// Number of warm-up runs per arm.
    pub warm_ups: u64,
    /// Number of consecutive runs of the first arm before the blocks. They measure the machine's
    /// own noise.
    pub noise_runs: u64,
    /// Time to wait after changing a setting before the next run.
    #[serde(rename = "settle_ns")]
    pub settle: Nanos,
    /// Largest effect that still counts as no difference, as a share of the first arm's value.
    #[serde(rename = "difference_share")]
    pub difference: f64,
}

/// A quantity measured in each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Name on the command line, such as `time`.
    pub id: String,
    /// Unit of the metric's values.
    pub unit: Unit,
    /// Whether lower or higher values of the metric are better.
    pub better: Better,
    /// Where the metric's values come from.
    pub origin: Origin,
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Seconds, the unit of some other tools.
    S,
    /// A share, 0 to 1.
    Share,
    /// Events per second.
    Hz,
    /// Events per minute.
    PerMinute,
    /// No unit, or an unknown one.
    None,
}

/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better, as for times and losses.
    Lower,
    /// Higher is better, as for rates.
    Higher,
    /// Unknown.
    Unknown,
}

impl Better {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Lower, Self::Higher, Self::Unknown];

    /// Kinds of metrics with this direction, for help texts.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lower => "Lower is better, for example times and losses",
            Self::Higher => "Higher is better, for example rates",
            Self::Unknown => "Report differences without judging them",
        }
    }

    /// Name of the direction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Unknown => "unknown",
        }
    }
}

/// Where a metric's values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The command's run time, measured by the process that waits for it.
    Command,
    /// An audit of the command.
    Audit,
    /// A file of numbers.
    File,
}

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunPurpose {
    /// Fills caches. The results are discarded.
    WarmUp,
    /// Measures the machine's own noise, by comparing the first arm with itself.
    Noise,
    /// Measures an arm, for comparison with the other arms.
    Measured,
}

/// One run of the command, or one observation of the process, under one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRun {
    /// Why the run was done.
    pub purpose: RunPurpose,
    /// Block number, from 0. Also 0 for runs outside the blocks.
    pub block: u64,
    /// Position in the block, from 0. For a run outside the blocks, its position among the runs
    /// with the same purpose.
    pub position: u64,
    /// Index of the arm.
    pub arm: usize,
    /// Start, relative to the start of the trial.
    #[serde(rename = "began_ns")]
    pub began: Nanos,
    /// Whether the command succeeded. The values of failed runs are stored but not compared.
    pub succeeded: bool,
    /// Value of each metric, in the order and the units of the metrics; `None` if it could not be
    /// measured.
    pub values: Vec<Option<f64>>,
}

/// An arm's successful runs, compared with the first arm's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSuccess {
    /// Index of the arm.
    pub arm: usize,
    /// Number of runs in blocks.
    pub runs: u64,
    /// Number of successful runs in blocks.
    pub succeeded: u64,
    /// Probability that chance alone makes this arm's success rate differ this much from the first
    /// arm's (Fisher's exact test, two-sided). `None` for the first arm, or if no run failed.
    #[serde(rename = "chance_probability")]
    pub chance: Option<f64>,
}

/// A trial with its conclusions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStatement {
    /// Plan and measurements.
    #[serde(flatten)]
    pub trial: Trial,
    /// Number of successful runs of each arm, in the order of the arms.
    pub successes: Vec<ArmSuccess>,
    /// Comparisons of all other arms with the first, by arm, then by metric.
    pub comparisons: Vec<Comparison>,
    /// Results of the `--fail-if` conditions for every arm except the first.
    pub fail_if: Vec<FailIfResult>,
    /// Result of restoring each changed setting after the last run.
    pub restored: Vec<UndoneSetting>,
}
