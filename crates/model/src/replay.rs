//! Results of replaying a scenario with real threads that execute its programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Result of one thread of the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedTask {
    /// Number of frames started.
    pub frames: u64,
    /// Number of steps of a fixed time grid that were skipped because an earlier step took too
    /// long.
    pub overshot: u64,
    /// Number of steps in which the thread used CPU time.
    pub bursts: u64,
    /// Number of sleeps that ended on time.
    pub sleeps: u64,
    /// CPU time that the scenario requested.
    #[serde(rename = "requested_ns", alias = "asked_ns")]
    pub requested: Nanos,
    /// CPU time that the thread used, according to its own CPU clock.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
}
