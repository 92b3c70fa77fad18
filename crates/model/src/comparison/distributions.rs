//! The part of a comparison that is particular to distributions, which another tool measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Record of a comparison of distributions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistributionsRecord {
    /// Largest effect that still counts as no difference, as a share of the first arm's value.
    #[serde(rename = "difference_share")]
    pub difference: f64,
    /// The distributions, in the order of their metrics.
    pub compared: Vec<ComparedDistribution>,
    /// Metrics without a confidence interval, and the reasons.
    pub without_interval: Vec<WithoutInterval>,
}

/// A quantity whose distribution both arms have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedDistribution {
    /// Name, with which the names of its metrics start; empty if there is only one.
    pub name: String,
    /// Number of values in each arm; `None` if the file has only percentiles.
    pub counts: [Option<u64>; 2],
}

/// A metric without a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WithoutInterval {
    /// Index of the metric.
    pub metric: usize,
    /// The reason.
    pub reason: NoInterval,
}

/// Why a metric has no confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum NoInterval {
    /// The file has percentiles, but no counts.
    PercentilesOnly {
        /// Index of the arm.
        arm: usize,
    },
    /// The metric is the largest value, which grows with the number of values.
    Maximum,
    /// There are too few values for this percentile.
    TooFew {
        /// Index of the arm.
        arm: usize,
        /// Number of values available.
        have: u64,
        /// Number of values needed.
        need: u64,
    },
    /// The percentile, or an end of its interval, is above all bins of the histogram.
    OutOfRange {
        /// Index of the arm.
        arm: usize,
    },
}
