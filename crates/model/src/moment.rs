//! One interval in a recording that a reader may want to look at, such as the longest delay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// One interval in a recording: its start, its length and its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Start of the interval, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Wall-clock duration.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// CPU on which the interval occurred.
    pub cpu: Cpu,
}

impl Moment {
    /// Returns the end of the interval.
    pub fn end(&self) -> Nanos {
        self.at + self.length
    }
}
