//! Data in a recording's header about the victim, that is, the program or cgroup to analyse.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::group::GroupSettings;
use crate::limitation::Limitation;
use crate::machine::MemoryLimit;

/// A thread for the tracer to follow, as read from `/proc` just before the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedThread {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Thread name.
    pub name: String,
    /// The thread's state at that time.
    pub state: RunState,
}

/// State of a thread, according to `/proc/PID/task/TID/stat` and `wchan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Runnable or running.
    Runnable,
    /// The thread is in an interruptible sleep.
    Sleeping,
    /// The thread is in an uninterruptible sleep. `/proc` does not show whether it waits for a disk
    /// or for a lock.
    Uninterruptible,
    /// Stopped.
    Stopped,
    /// Frozen by the freezer of a cgroup or of the system.
    Frozen,
}

/// How the victim, the program or cgroup to analyse, was specified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The victim is the command that the audit started.
    Command,
    /// An existing process.
    Process,
    /// Several existing processes.
    Processes,
    /// The victim consists of all processes in the cgroup with this path.
    Cgroup(String),
}

/// Data in a recording's header about the victim, that is, the program or cgroup to analyse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimHeader {
    /// How the victim was specified.
    pub target: Target,
    /// Name of the victim's program or cgroup.
    pub name: String,
    /// Process id, if the victim is a single process.
    pub pid: Option<i32>,
    /// When the tracer started to follow the victim. Rows that ended earlier are not about the
    /// victim.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Whether the tracer followed the victim's threads.
    pub followed: bool,
    /// Why parts of the threads' lifetimes can be missing even though ticktax recorded everything
    /// it could.
    #[serde(default)]
    pub incomplete: Option<Limitation>,
    /// Resource usage of the victim at the start, from `/proc`.
    pub before: Option<Usage>,
    /// Resource usage of the victim at the end, or when it was last seen.
    pub after: Option<Usage>,
    /// Resource usage of each thread; `None` if it was not requested.
    #[serde(default)]
    pub threads: Option<ThreadUsages>,
    /// Path of the cgroup whose freezer can freeze the victim; `None` if it is unknown or the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freezer: Option<String>,
    /// Directory of the cgroup that still froze the victim when the recording ended; `None` if it
    /// was not frozen then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_by: Option<String>,
    /// `SCHED_DEADLINE` budget of the victim at the start. `None` unless exactly one of its threads
    /// has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineBudget>,
    /// Id of the only thread to report; `None` to report the entire process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_thread: Option<i32>,
    /// Time that each thread spent in system calls of less than 50 µs, which have no separate rows.
    /// `None` if the tracer did not watch system calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_system_calls: Option<Vec<ShortCalls>>,
    /// Settings of the cgroups that the victim was in at the start; `None` if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_settings: Option<Box<GroupSettings>>,
    /// The memory limit, among those of the victim's cgroups, that was reached most often during
    /// the recording; `None` if no limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
}

impl VictimHeader {
    /// Creates the data about a victim whose threads the tracer followed from `begin`, with
    /// everything else unknown.
    pub fn new(target: Target, name: impl Into<String>, begin: Nanos) -> Self {
        Self {
            target,
            name: name.into(),
            pid: None,
            begin,
            followed: true,
            incomplete: None,
            before: None,
            after: None,
            threads: None,
            freezer: None,
            frozen_by: None,
            deadline: None,
            only_thread: None,
            short_system_calls: None,
            group_settings: None,
            memory_limit: None,
        }
    }
}

/// CPU time that a thread may use under `SCHED_DEADLINE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadlineBudget {
    /// CPU time per period.
    #[serde(rename = "runtime_ns")]
    pub runtime: Nanos,
    /// Deadline within a period, counted from its start, by which the thread gets its CPU time.
    #[serde(rename = "deadline_ns")]
    pub deadline: Nanos,
    /// Length of a period.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
}

/// Time that one thread spent on a CPU in system calls that were too short for separate rows. The
/// time is included in the thread's `task` rows without a detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShortCalls {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Total time in these calls, excluding interruptions.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of these calls. If a switch or a page fault interrupts a call, each part of it
    /// counts.
    pub count: u64,
}

/// Resource usage of each thread at two readings, taken close to the start and the end of a
/// recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsages {
    /// Time of the first reading, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Time of the last reading at which the program still existed, on `CLOCK_MONOTONIC`.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Threads that existed at both readings.
    pub threads: Vec<ThreadUsage>,
}

/// Resource usage of one thread at both readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// Thread id.
    pub tid: i32,
    /// Resource usage until the first reading.
    pub before: Usage,
    /// Resource usage until the last reading.
    pub after: Usage,
}

impl ThreadUsages {
    /// Returns the resources that thread `tid` used between the readings, and the time between
    /// them. Returns `None` if the thread did not exist at both readings.
    pub fn usage(&self, tid: i32) -> Option<(Usage, Nanos)> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        Some((thread.after.since(&thread.before), self.end - self.begin))
    }
}

/// Resources that a program or thread has used so far, from `/proc/PID`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time in user mode.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// CPU time in kernel mode.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Number of voluntary context switches, which occur when a thread blocks. Only living threads
    /// are included.
    pub voluntary: u64,
    /// Number of involuntary context switches, which occur when a thread is preempted. Only living
    /// threads are included.
    pub involuntary: u64,
    /// Time on a CPU, according to the scheduler's clock; `None` if the kernel does not record it.
    /// Only living threads are included.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// Time spent waiting for a CPU, according to the scheduler's clock; `None` if the kernel does
    /// not record it. Only living threads are included.
    #[serde(rename = "waited_ns")]
    pub waited: Option<Nanos>,
}

impl Usage {
    /// Returns the resources used since `before`. Some of the sums lose the usage of threads that
    /// exited in between, so each difference is at least 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let time = |a: Nanos, b: Nanos| (a - b).max(Nanos::ZERO);
        let optional = |a: Option<Nanos>, b: Option<Nanos>| Some(time(a?, b?));
        Self {
            user: time(self.user, before.user),
            system: time(self.system, before.system),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            on_cpu: optional(self.on_cpu, before.on_cpu),
            waited: optional(self.waited, before.waited),
        }
    }
}
