//! The position of a recording that is only part of a longer one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Position of a recording that is part of a longer one. Times in statements are relative to the
/// start of the longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingPart {
    /// Start of the longer recording, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Start of the part, relative to the start of the longer recording.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// End of the part, relative to the start of the longer recording.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// Length of the longer recording.
    #[serde(rename = "total_ns", alias = "whole_ns")]
    pub total: Nanos,
}

impl RecordingPart {
    /// Returns the start of the part, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.begin + self.from
    }

    /// Returns the end of the part, on `CLOCK_MONOTONIC`.
    pub fn end(&self) -> Nanos {
        self.begin + self.to
    }

    /// Returns the length of the part.
    pub fn length(&self) -> Nanos {
        self.to - self.from
    }
}
