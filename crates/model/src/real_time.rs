//! Limits that hold back real-time threads for part of each period.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The kernel mechanism that holds back a real-time thread while its CPU runs ordinary threads or
/// is idle.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RealTimeLimit {
    /// Real-time throttling: the CPU's real-time threads used up the `sched_rt_runtime_us` that
    /// they may run per period.
    Throttling,
    /// The fair server (Linux 6.12 and later), which runs ordinary threads that have waited too
    /// long.
    FairServer,
    /// Real-time throttling or the fair server. The kernel has both, or its version is unknown, and
    /// the rows do not show which one acted.
    Either,
}

/// Time during which a limit held back a program's real-time threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RealTimeHeld {
    /// Name of the program.
    pub name: String,
    /// Process ids of the program.
    pub pids: Vec<i32>,
    /// The limit that held the threads back.
    pub limit: RealTimeLimit,
    /// `sched_rt_runtime_us`; `None` if the run time is unlimited.
    #[serde(rename = "runtime_ns")]
    pub runtime: Option<Nanos>,
    /// `sched_rt_period_us`.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Time that threads were held back, summed over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of times that a thread was held back.
    pub count: u64,
    /// Longest time that a thread was held back.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}
