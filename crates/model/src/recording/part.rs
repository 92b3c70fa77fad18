//! A part of a recording, as a recording of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Which part of a longer recording this is. Times that a statement tells are counted from the begin of
/// the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingPart {
    /// When the whole began, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Where the part begins, after the begin of the whole.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// Where it ends, after the begin of the whole.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// How long the whole is.
    #[serde(rename = "whole_ns")]
    pub whole: Nanos,
}

impl RecordingPart {
    /// When the part begins, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.begin + self.from
    }

    /// When it ends.
    pub fn end(&self) -> Nanos {
        self.begin + self.to
    }

    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.to - self.from
    }
}
