//! Run-queue waits of all threads on a machine, and the threads that ran during these waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::real_time::RealTimeHeld;
use crate::{Kind, Nanos};

/// Time that threads waited for a CPU, and what ran on these CPUs during that time. The times are
/// summed over threads, so they can exceed the length of the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitStatement {
    /// Total waiting time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Whether the waits of preempted threads are included. If events were lost, only waits that
    /// started with a wake-up are.
    pub preempted: bool,
    /// Programs that waited longest in total. Processes with the same name count as one program.
    pub programs: Vec<WaitingProgram>,
    /// Number of programs that waited but did not make it into `programs`.
    pub programs_left_out: u64,
    /// The same waits by group; `None` if no group is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_group: Option<GroupWaits>,
    /// Processes and kernel threads that others waited behind, in descending order of the waiting
    /// time they caused. Processes with the same name have separate entries.
    pub behind: Vec<WaitedFor>,
    /// Part of `time` during which one of ticktax's threads ran, including its probe.
    #[serde(
        default,
        rename = "behind_ticktax_ns",
        skip_serializing_if = "Nanos::is_zero"
    )]
    pub behind_ticktax: Nanos,
    /// Real-time threads that a kernel limit kept from running even though no thread of higher
    /// priority was runnable. If the CPU was idle, they were not waiting for it, so no other field
    /// of this statement includes that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
}

/// Run-queue waits by group. A program or kernel thread whose group is unknown has a separate
/// entry, under its own name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupWaits {
    /// Groups that waited longest in total.
    pub groups: Vec<WaitingProgram>,
    /// Number of groups that waited but did not make it into `groups`.
    #[serde(default)]
    pub groups_left_out: u64,
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
    /// Programs and kernel threads that ran while the program waited, longest time first. Some may
    /// be missing.
    pub behind: Vec<WaitedFor>,
}

/// A program or kernel activity that ran while other threads waited for the CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitedFor {
    /// Name of the program or kernel activity.
    pub name: String,
    /// Kind of activity on the CPU.
    pub kind: Kind,
    /// Process ids, if the activity is a program.
    pub pids: Vec<i32>,
    /// Total time that other threads waited behind the activity, summed over these threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
