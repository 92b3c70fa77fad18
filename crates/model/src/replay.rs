//! Results of the real threads that performed a scenario's programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Result of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedTask {
    /// Frames started.
    pub frames: u64,
    /// Steps on a fixed time grid that were skipped because the previous step overran.
    pub overshot: u64,
    /// Steps that used CPU time.
    pub bursts: u64,
    /// Sleeps that ended on time.
    pub sleeps: u64,
    /// CPU time that the scenario requested.
    #[serde(rename = "asked_ns")]
    pub asked: Nanos,
    /// CPU time used, according to the thread's CPU clock.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
}
