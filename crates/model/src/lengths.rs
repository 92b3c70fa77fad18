//! How many intervals something came in, and how long they were.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// How many intervals there were, and how long: none, where a source only says how much time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Intervals {
    /// How many; 0 where the source only says how much time.
    pub count: u64,
    /// Their median length on the wall.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// The length that 99 of 100 stay below; `None` of too few to tell (299).
    #[serde(rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// How long intervals were, of which there was at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lengths {
    /// Their median length.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// The length that 99 of 100 stay below; `None` of too few to tell (299).
    #[serde(default, rename = "p99_ns")]
    pub p99: Option<Nanos>,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

impl Intervals {
    /// How long they were; `None` where there were none, or none is known by itself.
    pub fn lengths(&self) -> Option<Lengths> {
        Some(Lengths {
            median: self.median?,
            p99: self.p99,
            max: self.max?,
        })
    }
}

impl Lengths {
    /// So many intervals of these lengths.
    pub fn of(self, count: u64) -> Intervals {
        Intervals {
            count,
            median: Some(self.median),
            p99: self.p99,
            max: Some(self.max),
        }
    }

    /// Of each the longer: what two of which only these are known have together, at most.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        Self {
            median: self.median.max(other.median),
            p99: self.p99.zip(other.p99).map(|(a, b)| a.max(b)),
            max: self.max.max(other.max),
        }
    }
}
