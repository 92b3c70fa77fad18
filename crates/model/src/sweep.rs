//! Summary of a parameter sweep over a scenario. The points are in a separate table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Outcome of a sweep and its extreme points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridStatement {
    /// Scenario file.
    pub scenario: String,
    /// Name of each axis and its number of values.
    pub axes: Vec<(String, u64)>,
    /// Number of points.
    pub points: u64,
    /// Number of points that an earlier invocation had already computed.
    pub found: u64,
    /// Number of damaged journal records. Their points were simulated again.
    pub damaged: u64,
    /// Number of points that could not be simulated.
    pub failed: u64,
    /// The first points that failed.
    pub failures: Vec<PointFailure>,
    /// Number of events simulated by this invocation.
    pub events: u64,
    /// Wall-clock time of this invocation.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// File that contains the points.
    pub results: String,
    /// Extreme points of a column, if the user named one.
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

/// A point and its value in the ranked column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedPoint {
    /// Point number, from 0.
    pub point: u64,
    /// Values of the point, one per axis.
    pub values: Vec<String>,
    /// Value in the ranked column.
    pub value: f64,
}
