//! Summary of a parameter sweep over a scenario. The results of its arms are in a separate table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Outcome of a sweep, with its extreme arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridStatement {
    /// Scenario file.
    pub scenario: String,
    /// Name of each axis, with its number of values.
    pub axes: Vec<(String, u64)>,
    /// Number of arms.
    pub arms: u64,
    /// Number of arms already computed by an earlier invocation.
    pub found: u64,
    /// Number of damaged journal records. Their arms were simulated again.
    pub damaged: u64,
    /// Number of arms that could not be simulated.
    pub failed: u64,
    /// The first arms that failed.
    pub failures: Vec<ArmFailure>,
    /// Number of events that this invocation simulated.
    pub events: u64,
    /// Wall-clock duration of this invocation.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// File with the results of all arms.
    pub results: String,
    /// Extreme arms of the column that the user chose, if any.
    pub ranking: Option<Ranking>,
}

/// An arm that could not be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmFailure {
    /// Arm number, from 0.
    pub arm: u64,
    /// Values of the arm, one per axis.
    pub values: Vec<String>,
    /// Why it failed.
    pub why: String,
}

/// Extreme arms of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// Column name.
    pub column: String,
    /// Number of arms with a value in this column.
    pub arms: u64,
    /// Arms with the highest values, in descending order.
    pub highest: Vec<RankedArm>,
    /// Arms with the lowest values, in ascending order. None of them is also in `highest`.
    pub lowest: Vec<RankedArm>,
}

/// An arm with its value in the ranked column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedArm {
    /// Arm number, from 0.
    pub arm: u64,
    /// Values of the arm, one per axis.
    pub values: Vec<String>,
    /// Value in the ranked column.
    pub value: f64,
}
