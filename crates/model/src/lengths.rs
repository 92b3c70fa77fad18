//! Number and lengths of intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Number and lengths of intervals. The lengths are `None` for sources that report only their total
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Intervals {
    /// Number of intervals; 0 if the source reports only its total time.
    pub count: u64,
    /// Median wall-clock length.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// 99th percentile of the length; `None` if there are fewer than 299 intervals, too few to
    /// bound it.
    #[serde(rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// Longest wall-clock length.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// Lengths of one or more intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lengths {
    /// Median length.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// 99th percentile of the length; `None` if there are fewer than 299 intervals, too few to
    /// bound it.
    #[serde(default, rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// Longest length.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

/// Minimum probability that at least one of the observed times exceeds the quantile.
const CONFIDENCE: f64 = 0.95;

/// Whether `count` times are enough to report the quantile `q`. The probability that at least one
/// of them exceeds the true quantile must be 95 %. The probability that none does is `q^count`.
/// This requires 5 times for the median, 29 for 0.9, 299 for 0.99, and 2995 for 0.999.
pub fn tellable(q: f64, count: u64) -> bool {
    count as f64 * q.ln() <= (1.0 - CONFIDENCE).ln()
}

impl Intervals {
    /// The lengths; `None` if there were no intervals or if only their total time is known.
    pub fn lengths(&self) -> Option<Lengths> {
        Some(Lengths {
            median: self.median?,
            p99: self.p99,
            max: self.max?,
        })
    }
}

impl Lengths {
    /// Combines these lengths with `count`, the number of intervals.
    pub fn with_count(self, count: u64) -> Intervals {
        Intervals {
            count,
            median: Some(self.median),
            p99: self.p99,
            max: Some(self.max),
        }
    }

    /// The larger value of each figure. This is an upper bound for the union of two sets of
    /// intervals if only the figures of each set are known.
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
