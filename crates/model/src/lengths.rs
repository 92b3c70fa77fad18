//! Number of intervals, and statistics of their lengths.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Number of intervals, and statistics of their lengths. All lengths are `None` for sources that
/// report only the total time of their intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Intervals {
    /// Number of intervals; 0 if the source reports only their total time.
    pub count: u64,
    /// Median wall-clock length.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// 99th percentile of the lengths. `None` if there are fewer than 299 intervals, because the
    /// percentile then has no upper confidence bound.
    #[serde(rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// Longest wall-clock length.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// Statistics of the lengths of one or more intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lengths {
    /// Median length.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// 99th percentile of the lengths. `None` if there are fewer than 299 intervals, because the
    /// percentile then has no upper confidence bound.
    #[serde(default, rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// Longest length.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

/// A quantile is reported only if at least one observed time exceeds it with at least this
/// probability.
const CONFIDENCE: f64 = 0.95;

/// Returns whether `count` values are enough to report their quantile `q`, that is, whether at
/// least one of them exceeds the true quantile with a probability of 95 %. The probability that
/// none does is `q^count`. So the median needs 5 values, the quantile 0.9 needs 29, 0.99 needs 299,
/// and 0.999 needs 2995.
pub fn tellable(q: f64, count: u64) -> bool {
    count as f64 * q.ln() <= (1.0 - CONFIDENCE).ln()
}

impl Intervals {
    /// Returns the statistics of the lengths; `None` if there were no intervals or only their total
    /// time is known.
    pub fn lengths(&self) -> Option<Lengths> {
        Some(Lengths {
            median: self.median?,
            p99: self.p99,
            max: self.max?,
        })
    }
}

impl Lengths {
    /// Returns these statistics together with `count`, the number of intervals.
    pub fn with_count(self, count: u64) -> Intervals {
        Intervals {
            count,
            median: Some(self.median),
            p99: self.p99,
            max: Some(self.max),
        }
    }

    /// Returns the larger of the two values for each figure. This is an upper bound on the figure
    /// for the union of the two sets of intervals.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        Self {
            median: self.median.max(other.median),
            p99: self.p99.zip(other.p99).map(|(a, b)| a.max(b)),
            max: self.max.max(other.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tellable;

    #[test]
    fn a_quantile_needs_a_time_beyond_it() {
        for (q, min) in [(0.5, 5), (0.9, 29), (0.99, 299), (0.999, 2_995)] {
            assert!(tellable(q, min) && !tellable(q, min - 1), "{q}");
        }
    }
}
