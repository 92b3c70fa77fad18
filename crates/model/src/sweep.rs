//! What came of a sweep over a scenario, for a person: the points themselves are a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// How a sweep ended, and its extreme points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridStatement {
    /// The scenario's file.
    pub scenario: String,
    /// The axes' names, with how many values each has.
    pub axes: Vec<(String, u64)>,
    /// How many points there are.
    pub points: u64,
    /// How many of them were there already when it began.
    pub found: u64,
    /// Records of the journal that were damaged, and whose points were run again.
    pub damaged: u64,
    /// How many could not be run.
    pub failed: u64,
    /// The first of those.
    pub failures: Vec<PointFailure>,
    /// Events that were simulated this time.
    pub events: u64,
    /// How long that took.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// The file that has the points.
    pub results: String,
    /// The highest and lowest of a column, where one was named.
    pub ranking: Option<Ranking>,
}

/// A point that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PointFailure {
    /// Its number, from 0.
    pub point: u64,
    /// Its values, an axis each.
    pub values: Vec<String>,
    /// Why not.
    pub why: String,
}

/// Points by one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// The column.
    pub column: String,
    /// How many points have a value there.
    pub points: u64,
    /// The highest, the highest first.
    pub highest: Vec<RankedPoint>,
    /// The lowest, the lowest first; no point is in both.
    pub lowest: Vec<RankedPoint>,
}

/// A point with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedPoint {
    /// Its number, from 0.
    pub point: u64,
    /// Its values, an axis each.
    pub values: Vec<String>,
    /// What it has in the column.
    pub value: f64,
}
