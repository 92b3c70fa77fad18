//! Results of threads that actually executed a scenario's programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Result of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedTask {
    /// Number of frames started.
    pub frames: u64,
    /// Number of steps on a fixed time grid that were skipped because an earlier step overran.
    pub overshot: u64,
    /// Number of steps that used CPU time.
    pub bursts: u64,
    /// Number of sleeps that ended on time.
    pub sleeps: u64,
    /// CPU time requested by the scenario.
    #[serde(rename = "requested_ns", alias = "asked_ns")]
    pub requested: Nanos,
    /// CPU time used, according to the thread's CPU clock.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
}
