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

/// State of a thread in `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Runnable or running.
    Runnable,
    /// In an interruptible sleep.
    Sleeping,
    /// In an uninterruptible sleep. `/proc` does not show whether it waits for a disk or a lock.
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

/// The entry for the victim in a recording's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimHeader {
    /// How the victim was specified.
    pub target: Target,
    /// Name of the victim's program or cgroup.
    pub name: String,
    /// Process id, if the victim is a single process.
    pub pid: Option<i32>,
    /// Time from which the victim was followed. Rows that ended earlier do not concern it.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Whether the tracer followed the victim's threads.
    pub followed: bool,
    /// A reason outside ticktax's control why parts of the threads' lifetimes may be missing.
    #[serde(default)]
    pub incomplete: Option<Limitation>,
    /// Resource usage at the start, from `/proc`.
    pub before: Option<Usage>,
    /// Resource usage at the end, or when the victim was last seen.
    pub after: Option<Usage>,
    /// Resource usage by thread, if requested.
    #[serde(default)]
    pub threads: Option<ThreadUsages>,
    /// The one thread to report, if not the whole process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_thread: Option<i32>,
}

/// Resource usage of each thread between two readings close to the ends of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsages {
    /// Time of the first reading, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Time of the last reading that found the program, on `CLOCK_MONOTONIC`.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Threads that were present at both readings.
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
    /// Resource usage of thread `tid` between the readings, and the time between them.
    pub fn of(&self, tid: i32) -> Option<(Usage, Nanos)> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        Some((thread.after.since(&thread.before), self.end - self.begin))
    }
}

/// Resource usage of a program so far, from `/proc/PID`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time in user mode.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// CPU time in the kernel.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Voluntary context switches: the thread blocked. Living threads only.
    pub voluntary: u64,
    /// Involuntary context switches: the thread was preempted. Living threads only.
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
    /// Resource usage since `before`. Threads that exited in between drop out of some sums, so
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
