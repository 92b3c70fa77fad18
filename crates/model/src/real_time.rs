//! Real-time threads that the kernel keeps from their CPU for a part of each period.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// What keeps a real-time thread from a CPU that runs ordinary threads, or nobody.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RealTimeLimit {
    /// The real-time threads of the CPU had used up `sched_rt_runtime_us` of the period.
    Throttling,
    /// Ordinary threads had waited for so long that the kernel's fair server ran them (6.12 and later).
    FairServer,
    /// One of the two: this kernel has both, or it is not known which, and the rows do not tell.
    Either,
}

/// The waits of a program's real-time threads for which that was so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RealTimeHeld {
    /// The program.
    pub name: String,
    /// Its processes.
    pub pids: Vec<i32>,
    /// What kept them from their CPU.
    pub limit: RealTimeLimit,
    /// `sched_rt_runtime_us`; `None` where it limits nothing.
    #[serde(rename = "runtime_ns")]
    pub runtime: Option<Nanos>,
    /// `sched_rt_period_us`.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// For how long, of all its threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How often.
    pub count: u64,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}
