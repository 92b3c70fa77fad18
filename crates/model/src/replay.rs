//! What real threads did that performed a scenario's programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// What one of the threads did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedTask {
    /// Frames that it began.
    pub frames: u64,
    /// Steps on a grid that were left out, because the one before took too long.
    pub overshot: u64,
    /// Steps that worked.
    pub bursts: u64,
    /// Sleeps that ended in time.
    pub sleeps: u64,
    /// The CPU time that was asked of it.
    #[serde(rename = "asked_ns")]
    pub asked: Nanos,
    /// The CPU time that it used, by its own clock.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
}
