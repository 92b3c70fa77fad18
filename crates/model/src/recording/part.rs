//! Position of a part within a longer recording.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Marks a recording as part of a longer one. Times in statements are relative to the start of the
/// entire recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingPart {
    /// Start of the entire recording, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Start of the part, relative to the start of the entire recording.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// End of the part, relative to the start of the entire recording.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// Length of the entire recording.
    #[serde(rename = "total_ns", alias = "whole_ns")]
    pub total: Nanos,
}

impl RecordingPart {
    /// Start of the part, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.begin + self.from
    }

    /// End of the part, on `CLOCK_MONOTONIC`.
    pub fn end(&self) -> Nanos {
        self.begin + self.to
    }

    /// Length of the part.
    pub fn length(&self) -> Nanos {
        self.to - self.from
    }
}
