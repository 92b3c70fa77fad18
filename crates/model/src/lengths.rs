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
