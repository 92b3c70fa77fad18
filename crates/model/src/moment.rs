//! Where in a recording something is to be looked at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// One interval of a recording, by when and where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// When it began, after the recording's begin.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long it took on the wall.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// The CPU that it was on.
    pub cpu: Cpu,
}
