//! What a recording's header says of the program whose time is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::limitation::Limitation;

/// A thread to follow, as `/proc` shows it just before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedThread {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: RunState,
}

/// What a thread is doing, as `/proc/PID/task/TID/stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It may run, or does.
    Runnable,
    /// It waits for something, and a signal would wake it.
    Sleeping,
    /// It waits for something that no signal interrupts. `/proc` does not tell a disk from a lock.
    Uninterruptible,
    /// It is stopped.
    Stopped,
}

/// How a victim was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The command that the audit ran.
    Command,
    /// A process that was there.
    Process,
    /// Several processes that were there.
    Processes,
    /// Everything in a cgroup, by its path.
    Cgroup(String),
}

/// What a recording's header says of its victim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimHeader {
    /// How it was named.
    pub target: Target,
    /// The name of its program, or of its cgroup.
    pub name: String,
    /// Its process id, where it is one process.
    pub pid: Option<i32>,
    /// From when on it was followed; rows that ended before are not about it.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Whether its threads were followed by the tracer.
    pub followed: bool,
    /// Why a part of its threads' lives may be missing without a fault of ticktax.
    #[serde(default)]
    pub incomplete: Option<Limitation>,
    /// What `/proc` said of it at the start.
    pub before: Option<Usage>,
    /// And at the end, or when it was last seen.
    pub after: Option<Usage>,
    /// The same of each of its threads, where that was asked for.
    #[serde(default)]
    pub threads: Option<ThreadUsages>,
}

/// What each thread of a program used, between two moments that are near a recording's ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsages {
    /// When the first reading was taken, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// When the last one was taken that found the program.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// The threads that are in both.
    pub threads: Vec<ThreadUsage>,
}

/// What one thread used, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// Its number.
    pub tid: i32,
    /// Its use at the first reading.
    pub before: Usage,
    /// Its use at the last one.
    pub after: Usage,
}

impl ThreadUsages {
    /// What thread `tid` used between the readings, and how far these are apart.
    pub fn of(&self, tid: i32) -> Option<(Usage, Nanos)> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        Some((thread.after.since(&thread.before), self.end - self.begin))
    }
}

/// What `/proc/PID` says that a program used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time in the program.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// CPU time in the kernel.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Times that it gave up its CPU, because it waited for something; living threads only.
    pub voluntary: u64,
    /// Times that it lost its CPU to another; living threads only.
    pub involuntary: u64,
    /// Time on CPUs by the scheduler's clock, where the kernel keeps it; living threads only.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// Time for which it waited for a CPU, likewise.
    #[serde(rename = "waited_ns")]
    pub waited: Option<Nanos>,
}

impl Usage {
    /// What was used from `before` to here. Threads may have ended meanwhile, which takes what they
    /// used out of some of the sums: none is below 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let time = |a: Nanos, b: Nanos| (a - b).max(Nanos::ZERO);
        let both = |a: Option<Nanos>, b: Option<Nanos>| Some(time(a?, b?));
        Self {
            user: time(self.user, before.user),
            system: time(self.system, before.system),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            on_cpu: both(self.on_cpu, before.on_cpu),
            waited: both(self.waited, before.waited),
        }
    }
}
