//! The comparison of two lists of numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Better, Comparison, Unit};

/// Comparison of two lists of numbers, which were measured by another tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumbersComparison {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// First list.
    pub first: Numbers,
    /// Second list.
    pub second: Numbers,
    /// Unit of the numbers, if the files state it.
    pub unit: Unit,
    /// Whether lower or higher numbers are better.
    pub better: Better,
    /// Largest effect that still counts as no difference, as a share of the first list's mean.
    #[serde(rename = "difference_share")]
    pub difference: f64,
    /// Comparison of the second list with the first.
    pub comparison: Comparison,
}

/// A list of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbers {
    /// File that contains the numbers.
    pub file: String,
    /// Name of the list within the file, which is the name of a column or a command; `None` if it
    /// has no name.
    pub name: Option<String>,
    /// Number of values.
    pub count: u64,
    /// Number of runs that failed according to the file. Their values are not in the list.
    pub failed: u64,
}
