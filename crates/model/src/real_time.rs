//! Kernel limits that keep real-time threads from running for part of each period.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Kernel limit that keeps a real-time thread from running while its CPU runs ordinary threads or
/// is idle.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RealTimeLimit {
    /// Real-time throttling. The CPU's real-time threads had used up their time for the period
    /// (`sched_rt_runtime_us`).
    Throttling,
    /// Real-time throttling of a cgroup. Its real-time threads had used up their time for the
    /// period (`cpu.rt_runtime_us`).
    Group,
    /// The fair server (Linux 6.12 and later), which runs ordinary threads that have waited too
    /// long for a real-time thread.
    FairServer,
    /// Real-time throttling or the fair server. The kernel has both, or its version is unknown, and
    /// the recording's rows do not show which one it was.
    Either,
}

/// Time that a limit kept a program's real-time threads from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RealTimeHeld {
    /// Name of the program.
    pub name: String,
    /// Process ids of the program.
    pub pids: Vec<i32>,
    /// The limit that kept the threads from running.
    pub limit: RealTimeLimit,
    /// Time that real-time threads may run per period (`sched_rt_runtime_us`, or that of `group`);
    /// `None` if it is unlimited.
    #[serde(rename = "runtime_ns")]
    pub runtime: Option<Nanos>,
    /// `sched_rt_period_us`.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Path of the cgroup whose limit kept the threads from running; `None` for the machine's
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Time that threads were kept from running, summed over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of times a thread was kept from running.
    pub count: u64,
    /// Longest time that a thread was kept from running.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}
