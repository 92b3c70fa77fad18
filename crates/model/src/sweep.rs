//! Summary of a parameter sweep over a scenario. The results of its points are in a separate table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Outcome of a sweep, with its extreme points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridStatement {
    /// Scenario file.
    pub scenario: String,
    /// Name of each axis, with its number of values.
    pub axes: Vec<(String, u64)>,
    /// Number of points.
    pub points: u64,
    /// Number of points already computed by an earlier invocation.
    pub found: u64,
    /// Number of damaged journal records. Their points were simulated again.
    pub damaged: u64,
    /// Number of points that could not be simulated.
    pub failed: u64,
    /// The first points that failed.
    pub failures: Vec<PointFailure>,
    /// Number of events that this invocation simulated.
    pub events: u64,
    /// Wall-clock duration of this invocation.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// File with the results of all points.
    pub results: String,
    /// Extreme points of the column that the user chose, if any.
    pub ranking: Option<Ranking>,
}

/// A point that could not be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PointFailure {
    /// Point number, from 0.
    pub point: u64,
    /// Values of the point, one per axis.
    pub values: Vec<String>,
    /// Why it failed.
    pub why: String,
}

/// Extreme points of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// Column name.
    pub column: String,
    /// Number of points with a value in this column.
    pub points: u64,
    /// Points with the highest values, in descending order.
    pub highest: Vec<RankedPoint>,
    /// Points with the lowest values, in ascending order. None of them is also in `highest`.
    pub lowest: Vec<RankedPoint>,
}

/// A point with its value in the ranked column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedPoint {
    /// Point number, from 0.
    pub point: u64,
    /// Values of the point, one per axis.
    pub values: Vec<String>,
    /// Value in the ranked column.
    pub value: f64,
}
