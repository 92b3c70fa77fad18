//! A recording's data about its victim.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::limitation::Limitation;

/// A thread to follow, as read from `/proc` just before the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedThread {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Thread name.
    pub name: String,
    /// State of the thread.
    pub state: RunState,
}

/// A thread's state in `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Runnable or running.
    Runnable,
    /// In an interruptible sleep.
    Sleeping,
    /// In an uninterruptible sleep. `/proc` does not show whether the thread waits for a disk or a
    /// lock.
    Uninterruptible,
    /// Stopped.
    Stopped,
}

/// How a victim was specified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The command that the audit started.
    Command,
    /// An existing process.
    Process,
    /// Several existing processes.
    Processes,
    /// All processes in a cgroup, given by its path.
    Cgroup(String),
}

/// The victim's entry in a recording's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimHeader {
    /// How the victim was specified.
    pub target: Target,
    /// Name of the victim's program or cgroup.
    pub name: String,
    /// Process id, if the victim is a single process.
    pub pid: Option<i32>,
    /// When the tracer started to follow the victim. Rows that ended earlier do not concern it.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Whether the tracer followed the victim's threads.
    pub followed: bool,
    /// Why parts of the threads' lifetimes may be missing, for reasons outside ticktax's control.
    #[serde(default)]
    pub incomplete: Option<Limitation>,
    /// Resource usage at the start, from `/proc`.
    pub before: Option<Usage>,
    /// Resource usage at the end, or when the victim was last seen.
    pub after: Option<Usage>,
    /// Resource usage by thread, if requested.
    #[serde(default)]
    pub threads: Option<ThreadUsages>,
    /// The only thread to report; `None` to report the entire process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_thread: Option<i32>,
}

/// Resource usage of each thread between two readings, close to the start and the end of a
/// recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsages {
    /// When the first reading was taken, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// When the last reading that found the program was taken, on `CLOCK_MONOTONIC`.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Threads that both readings found.
    pub threads: Vec<ThreadUsage>,
}

/// Resource usage of one thread at both readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// Thread id.
    pub tid: i32,
    /// Usage at the first reading.
    pub before: Usage,
    /// Usage at the last reading.
    pub after: Usage,
}

impl ThreadUsages {
    /// Resource usage of thread `tid` between the readings, and the time between the readings.
    pub fn usage(&self, tid: i32) -> Option<(Usage, Nanos)> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        Some((thread.after.since(&thread.before), self.end - self.begin))
    }
}

/// A program's resource usage so far, from `/proc/PID`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time in user mode.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// CPU time in kernel mode.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Voluntary context switches, in which the thread blocked. Living threads only.
    pub voluntary: u64,
    /// Involuntary context switches, in which the thread was preempted. Living threads only.
    pub involuntary: u64,
    /// Time on CPUs according to the scheduler's clock, if the kernel records it. Living threads
    /// only.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// Run-queue waiting time according to the scheduler's clock, if the kernel records it. Living
    /// threads only.
    #[serde(rename = "waited_ns")]
    pub waited: Option<Nanos>,
}

impl Usage {
    /// Resource usage since `before`. Threads that exited in between are missing from some sums, so
    /// differences are clamped at 0.
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
