//! Summary of a parameter sweep: a scenario simulated with many combinations of values. The results
//! of all combinations are in a separate table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::trial::Unit;

/// Outcome of a parameter sweep, with its extreme arms. Each arm is one combination of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridStatement {
    /// Scenario file.
    pub scenario: String,
    /// Name of each varied parameter (axis), with the number of its values.
    pub axes: Vec<(String, u64)>,
    /// Number of arms.
    pub arms: u64,
    /// Number of arms whose results an earlier invocation had already computed.
    pub found: u64,
    /// Number of damaged records in the journal of results. Their arms were simulated again.
    pub damaged: u64,
    /// Number of arms that could not be simulated.
    pub failed: u64,
    /// The first few arms that could not be simulated.
    pub failures: Vec<ArmFailure>,
    /// Axes on which all arms that could not be simulated have the same value, with this value.
    /// Axes with a single value are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_at: Vec<(String, String)>,
    /// Number of events that this invocation simulated.
    pub events: u64,
    /// Wall-clock duration of this invocation.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// File that contains the results of all arms.
    pub results: String,
    /// Arms with extreme values in the column that the user chose; `None` if the user chose none.
    pub ranking: Option<Ranking>,
}

/// An arm that could not be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmFailure {
    /// Number of the arm, from 0.
    pub arm: u64,
    /// Values of the arm, one for each axis.
    pub values: Vec<String>,
    /// Why it failed.
    pub why: String,
}

/// Arms with extreme values in one column of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// Column name.
    pub column: String,
    /// Number of arms that have a value in this column.
    pub arms: u64,
    /// Arms with the highest values, in descending order.
    pub highest: Vec<RankedArm>,
    /// Arms with the lowest values, in ascending order. Arms that are already in `highest` are
    /// omitted.
    pub lowest: Vec<RankedArm>,
}

impl Ranking {
    /// Returns the unit of the column's values, which is taken from the end of the column's name.
    pub fn unit(&self) -> Unit {
        match self.column.rsplit(['.', '_']).next() {
            Some("ns") => Unit::Ns,
            Some("share") => Unit::Share,
            Some("fps") => Unit::Hz,
            _ => Unit::None,
        }
    }
}

/// An arm with its value in the ranked column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedArm {
    /// Number of the arm, from 0.
    pub arm: u64,
    /// Values of the arm, one for each axis.
    pub values: Vec<String>,
    /// Value in the ranked column.
    pub value: f64,
}
