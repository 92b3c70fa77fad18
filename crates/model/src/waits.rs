//! Run-queue waits of all threads on a machine, and the threads that ran during these waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::real_time::RealTimeHeld;
use crate::{Kind, Nanos};

/// Time that threads spent waiting for a CPU, and what ran on their CPUs in that time. Times are
/// summed over threads, so they can exceed the length of the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitStatement {
    /// Total waiting time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Whether waits that started with a preemption are included. If events were lost, only waits
    /// that started with a wake-up are.
    pub preempted: bool,
    /// Programs with the longest total waits. Processes with the same name are merged.
    pub programs: Vec<WaitingProgram>,
    /// Number of waiting programs not listed in `programs`.
    pub programs_left_out: u64,
    /// Processes and kernel threads that others waited behind, in descending order of the waiting
    /// that they caused. Each process and each kernel thread has its own entry.
    pub behind: Vec<WaitedFor>,
    /// Real-time threads that the kernel held back although no higher-priority thread was runnable.
    /// If the CPU was idle, that is not a wait for a CPU, so the times above exclude it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
}

/// A program that waited for a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingProgram {
    /// Program name.
    pub name: String,
    /// Process ids of the program.
    pub pids: Vec<i32>,
    /// Processes in `pids` that exited before the recording ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "ended")]
    pub exited_pids: Vec<i32>,
    /// Total waiting time, summed over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Longest wait.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Start of the longest wait, relative to the start of the recording.
    #[serde(rename = "max_at_ns")]
    pub max_at: Nanos,
    /// Programs and kernel threads that ran during the waits, longest time first. Some may be
    /// missing.
    pub behind: Vec<WaitedFor>,
}

/// A program or kernel activity that ran while others waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitedFor {
    /// Name of the program or kernel activity.
    pub name: String,
    /// Kind of activity on the CPU.
    pub kind: Kind,
    /// Process ids, if this is a program.
    pub pids: Vec<i32>,
    /// Total time that others waited behind it, summed over the waiting threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
