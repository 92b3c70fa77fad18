//! Trials: what became of a command, or of a running process, under one setting and under another.
//!
//! A [`Trial`] is what was planned and what was measured. A [`TrialStatement`] is that and what follows
//! from it. Two lists of numbers from somewhere else are judged in the same words ([`NumbersComparison`]).

mod comparison;
mod fail_if;
mod numbers;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::knob::UndoneSetting;
use crate::machine::Machine;

pub use comparison::{ArmFigures, Check, Comparison, Effect, Predicted, Scale, Verdict};
pub use fail_if::{Bound, FailIf, FailIfError, FailIfResult, Outcome, Relation};
pub use numbers::{Numbers, NumbersComparison};

/// What was tried and what it measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Version of the program that ran it.
    pub tool_version: String,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// What was run in each arm, or watched: a command with its arguments, or a process.
    pub subject: String,
    /// The settings that are compared, two at least. The first is the one that the others stand beside.
    pub arms: Vec<Arm>,
    /// What was measured of each run.
    pub metrics: Vec<Metric>,
    /// How it was planned.
    pub design: Design,
    /// Every run, in the order of time.
    pub runs: Vec<TrialRun>,
    /// Whether it was ended before its last block.
    pub interrupted: bool,
}

/// One of the settings that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// What it is called: `A`, `B`, ….
    pub label: String,
    /// What is set in it.
    pub settings: Vec<ArmSetting>,
}

/// A setting of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSetting {
    /// The knob's name.
    pub knob: String,
    /// Of what: the words that [`UndoneSetting`] has for it.
    pub target: String,
    /// Its value.
    pub value: String,
}

/// How a trial was planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Blocks. Each has every arm twice, mirrored (`A B B A`), so that a machine that slows down
    /// steadily slows all arms alike.
    pub blocks: u64,
    /// Of what the order of the arms in each block was drawn.
    pub seed: u64,
    /// Runs of each arm before any that counts.
    pub warm_ups: u64,
    /// Runs of the first arm, one after the other, before the blocks, by which the machine's own noise is known.
    pub noise_runs: u64,
    /// The time between a setting and the run that follows.
    #[serde(rename = "settle_ns")]
    pub settle: Nanos,
    /// The largest effect that counts as none, as a share of the first arm.
    #[serde(rename = "difference_share")]
    pub difference: f64,
}

/// What is measured of each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Its name, as it is typed: `time`.
    pub id: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Where its values come from.
    pub origin: Origin,
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Seconds, as other tools write them.
    S,
    /// A share, 0 to 1.
    Share,
    /// How often in a second.
    Hz,
    /// How often in a minute.
    PerMinute,
    /// None, or none that is known.
    None,
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less of it: a time, a share that was lost.
    Lower,
    /// More of it: a rate.
    Higher,
    /// Nobody said.
    Unknown,
}

impl Better {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Lower, Self::Higher, Self::Unknown];

    /// What it is of, for the help.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lower => "Times, and what is lost",
            Self::Higher => "Rates",
            Self::Unknown => "Nobody knows",
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Unknown => "unknown",
        }
    }
}

/// Where the values of a metric come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The command's own time, as whoever waits for it is told.
    Command,
    /// An audit of it.
    Audit,
    /// A file of numbers.
    File,
}

/// What a run was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunPurpose {
    /// To fill caches: nothing is made of it.
    WarmUp,
    /// To know the machine's own noise: the first arm beside itself.
    Noise,
    /// To be compared.
    Measured,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRun {
    /// What it was for.
    pub purpose: RunPurpose,
    /// Its block, from 0; 0 as well for what is in no block.
    pub block: u64,
    /// Its place in the block, from 0; for what is in no block, its place among the runs of its purpose.
    pub position: u64,
    /// Its arm, by its place among the arms.
    pub arm: usize,
    /// When it began, since the trial did.
    #[serde(rename = "began_ns")]
    pub began: Nanos,
    /// Whether the command succeeded. What a failed one measured is kept, and compared with nothing.
    pub succeeded: bool,
    /// A value for each metric, in their order and units; `None` where it could not be measured.
    pub values: Vec<Option<f64>>,
}

/// How many runs of an arm succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmSuccess {
    /// The arm, by its place among the arms.
    pub arm: usize,
    /// Its runs in blocks.
    pub runs: u64,
    /// Those of them that succeeded.
    pub succeeded: u64,
    /// The probability that chance makes as large a difference of successes from the first arm (Fisher's
    /// exact test, two-sided); `None` of the first arm, and where none failed.
    #[serde(rename = "chance_probability")]
    pub chance: Option<f64>,
}

/// A trial, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStatement {
    /// What was tried and measured.
    #[serde(flatten)]
    pub trial: Trial,
    /// How many runs of each arm succeeded, in the order of the arms.
    pub successes: Vec<ArmSuccess>,
    /// Each metric of each other arm beside the first: by arm, then by metric, in their orders.
    pub comparisons: Vec<Comparison>,
    /// What `--fail-if` asked, and what became of it: of each other arm.
    pub fail_if: Vec<FailIfResult>,
    /// What became of each setting that was changed, once the last run was over.
    pub restored: Vec<UndoneSetting>,
}
