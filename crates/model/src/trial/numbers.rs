//! Two lists of numbers beside each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Better, Comparison, Unit};

/// Two lists of numbers, of runs that somebody else made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumbersComparison {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The first list.
    pub first: Numbers,
    /// The second one.
    pub second: Numbers,
    /// The unit of the values, where the files say one.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The largest effect that counts as none, as a share of the first list's mean.
    #[serde(rename = "difference_share")]
    pub difference: f64,
    /// The second list beside the first.
    pub comparison: Comparison,
}

/// A list of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbers {
    /// Its file.
    pub file: String,
    /// Which of those in the file: a column's name, a command.
    pub name: Option<String>,
    /// How many numbers it has.
    pub count: u64,
    /// Runs that failed, by what the file says; their numbers are left out.
    pub failed: u64,
}
