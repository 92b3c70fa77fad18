//! The victim: the program that an analysis is about. This module contains what a recording stores
//! about it and its analysis in a statement.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod header;
mod late;

pub use header::{
    FollowedThread, RunState, Target, ThreadUsage, ThreadUsages, Usage, VictimHeader,
};
pub use late::{HoldUp, LateCause, LateFrame, LateFrames, LateTime, ThreadPolicy};

use crate::machine::Throttling;
use crate::pace::{Bucket, Figures};
use crate::policy::SpecialPolicy;
use crate::real_time::{RealTimeHeld, RealTimeLimit};
use crate::{Cpu, CpuList, Kind, Lengths, Moment, Nanos};

/// Suffix of a wait's detail if the wait started on one CPU and ended on another.
pub const MOVED: &str = ", moved";

/// Name of ticktax in lists of programs that ran instead of the victim.
pub const TOOL: &str = "ticktax";
/// Name of ticktax's probes in lists of programs that ran instead of the victim.
pub const PROBE: &str = "ticktax's probe";

/// Why a thread was off its CPU. Stored in `detail` of a recording's wait rows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OffCpuReason {
    /// Runnable since a wake-up.
    Woken,
    /// Runnable, but preempted.
    Preempted,
    /// Throttled, because its cgroup's CPU quota was used up.
    Throttled,
    /// Blocked in an interruptible sleep, such as on input, a timer or a futex.
    Sleeping,
    /// Blocked on a disk.
    Disk,
    /// Blocked in another uninterruptible sleep, usually on a kernel lock.
    Lock,
    /// Stopped or frozen.
    Stopped,
    /// Unknown: the kernel did not report when the thread left its CPU.
    Missed,
    /// A marker without duration: from here on, a new thread has this thread id.
    Reborn,
}

impl OffCpuReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Woken,
        Self::Preempted,
        Self::Throttled,
        Self::Sleeping,
        Self::Disk,
        Self::Lock,
        Self::Stopped,
        Self::Missed,
        Self::Reborn,
    ];

    /// Name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Woken => "woken",
            Self::Preempted => "preempted",
            Self::Throttled => "throttled",
            Self::Sleeping => "sleeping",
            Self::Disk => "disk",
            Self::Lock => "lock",
            Self::Stopped => "stopped",
            Self::Missed => "missed",
            Self::Reborn => "reborn",
        }
    }

    /// Splits a wait's detail into the reason and whether the thread moved to another CPU.
    pub fn from_detail(detail: &str) -> Option<(Self, bool)> {
        let (name, moved) = match detail.strip_suffix(MOVED) {
            Some(name) => (name, true),
            None => (detail, false),
        };
        let cause = Self::ALL.into_iter().find(|cause| cause.name() == name)?;
        Some((cause, moved))
    }
}

/// The states of a victim's threads, in the order in which a statement lists them. A thread is in
/// exactly one state at any time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// On a CPU and running.
    Running,
    /// On a CPU, serving a page fault.
    PageFault,
    /// On a CPU, reclaiming memory.
    Reclaim,
    /// On a CPU, interrupted by an interrupt, softirq or NMI.
    Interrupted,
    /// Runnable, waiting for a CPU.
    Waiting,
    /// Runnable, but throttled by its cgroup's quota.
    Throttled,
    /// Blocked on input, a timer, a futex or the like.
    Sleeping,
    /// Blocked on a disk.
    Disk,
    /// Blocked on a kernel lock, or in another uninterruptible sleep.
    Lock,
    /// Stopped or frozen.
    Stopped,
    /// Unknown: events were lost, or the thread ran on a CPU that was not watched.
    Unseen,
}

impl ThreadState {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Running,
        Self::PageFault,
        Self::Reclaim,
        Self::Interrupted,
        Self::Waiting,
        Self::Throttled,
        Self::Sleeping,
        Self::Disk,
        Self::Lock,
        Self::Stopped,
        Self::Unseen,
    ];

    /// Whether a thread in this state is runnable.
    pub const fn is_wanted(self) -> bool {
        matches!(
            self,
            Self::Running
                | Self::PageFault
                | Self::Reclaim
                | Self::Interrupted
                | Self::Waiting
                | Self::Throttled
        )
    }
}

impl From<OffCpuReason> for ThreadState {
    fn from(reason: OffCpuReason) -> Self {
        match reason {
            OffCpuReason::Woken | OffCpuReason::Preempted => Self::Waiting,
            OffCpuReason::Throttled => Self::Throttled,
            OffCpuReason::Sleeping | OffCpuReason::Reborn => Self::Sleeping,
            OffCpuReason::Disk => Self::Disk,
            OffCpuReason::Lock => Self::Lock,
            OffCpuReason::Stopped => Self::Stopped,
            OffCpuReason::Missed => Self::Unseen,
        }
    }
}

/// The analysis of a victim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimStatement {
    /// How the victim was specified.
    pub target: Target,
    /// Name of the victim's program or cgroup.
    pub name: String,
    /// Process id, if the victim is a single process.
    pub pid: Option<i32>,
    /// Whether the victim is known to have exited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", alias = "ended")]
    pub exited: bool,
    /// Times of the victim's threads; `None` if the tracer could not follow them.
    pub threads: Option<ThreadTimes>,
    /// Resource usage during the recording, according to the kernel's counters.
    pub usage: Option<Usage>,
    /// Counters of the victim's cgroup's CPU quota, over the audit.
    pub throttling: Option<Throttling>,
    /// Stolen time of all CPUs during the recording, according to the hypervisor's steal clock;
    /// `None` if there is no steal clock or it never advanced.
    #[serde(rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// The victim's frames, if the victim is a process with a thread that wakes up periodically.
    #[serde(default)]
    pub frames: Option<Box<ProgramFrames>>,
}

/// The frames of a watched program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramFrames {
    /// Name of the thread with the clearest period.
    pub thread: String,
    /// Id of that thread.
    pub tid: i32,
    /// Frame statistics.
    pub figures: Figures,
    /// Causes of late frames; `None` if no frame was late or if causes were not requested.
    #[serde(default)]
    pub late: Option<LateFrames>,
}

/// The times of a victim's threads over the interval that is accounted for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTimes {
    /// Number of processes.
    pub processes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Sum of the threads' lifetimes within the recording.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Sum of the times in all states. It must equal `elapsed`.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// Threads whose states do not add up to their lifetime, each with the difference.
    #[serde(rename = "imbalances_ns", alias = "off_ns")]
    pub imbalances: Vec<(i32, Nanos)>,
    /// States with time, in the order of [`ThreadState`].
    pub accounts: Vec<StateAccount>,
    /// Wake-up latency of the threads.
    pub latency: Option<Latency>,
    /// Histogram of the wake-up latency, without empty buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_buckets: Vec<Bucket>,
    /// Number of waits that ended on a CPU other than the one on which the thread had run before.
    pub migrations: u64,
    /// Programs and kernel activities that ran on the CPU that the victim waited for, largest total
    /// time first.
    pub behind: Vec<Interferer>,
    /// CPUs on which the victim spent at least 1 % of its time waiting behind others.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub waited_on: CpuList,
    /// Activities that interrupted the victim, largest total time first.
    pub interrupted_by: Vec<Interferer>,
    /// Longest delays, longest first.
    pub delays: Vec<Delay>,
    /// Waits of the victim's real-time threads while nothing of higher priority was runnable, with
    /// the limit that held these threads back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
}

impl ThreadTimes {
    /// Whether every nanosecond of every thread is in exactly one state.
    pub fn balances(&self) -> bool {
        self.imbalances.is_empty() && self.elapsed == self.accounted
    }
}

/// A victim's total time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateAccount {
    /// State.
    pub state: ThreadState,
    /// Total time in this state, over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// Wake-up latency of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Number of wake-ups.
    pub count: u64,
    /// Time from wake-up until the thread ran.
    #[serde(flatten)]
    pub lengths: Lengths,
}

/// A program or kernel activity that used CPU time while the victim was runnable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interferer {
    /// Name of the program, kernel thread or interrupt. `idle` for a CPU that ran nothing, or
    /// `idle, moved` if the thread then ran on another CPU.
    pub name: String,
    /// Kind of activity on the CPU.
    pub kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Program name, if the activity is a thread of a program.
    #[serde(default)]
    pub program: Option<String>,
    /// Number of this activity's threads that are counted here.
    #[serde(default)]
    pub threads: u64,
    /// Whether the activity belongs to the watched program, as another of its threads or a child
    /// process.
    #[serde(default, alias = "own")]
    pub same_program: bool,
    /// Total time that the victim lost to the activity.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// For an idle CPU, whether the thread then ran on another CPU. If so, the time is the cost of
    /// migration.
    #[serde(default, alias = "moved")]
    pub migrated: bool,
    /// Period, in ns, of the threads that caused most of this time. Set only if these threads are
    /// periodic, most of the time fell into their periodic activity, and their longest on-CPU
    /// period is shorter than the period.
    #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
    pub period: Option<f64>,
    /// Scheduling policy of the process. Set only if it is not the default and is shared by all of
    /// the process's threads that others waited behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SpecialPolicy>,
}

/// Kind of delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayKind {
    /// The thread was woken and waited for a CPU.
    Woken,
    /// The thread was preempted.
    Preempted,
    /// The thread's CPU handled interrupts.
    Interrupted,
    /// The quota of the thread's cgroup was used up.
    Throttled,
    /// The thread waited for a CPU after its cgroup was unthrottled.
    Unthrottled,
}

impl fmt::Display for DelayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Woken => "woken, then waiting",
            Self::Preempted => "preempted",
            Self::Interrupted => "interrupted",
            Self::Throttled => "throttled",
            Self::Unthrottled => "unthrottled, then waiting",
        })
    }
}

/// An interval in which a thread was runnable but did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    /// Kind of delay.
    pub kind: DelayKind,
    /// Thread name.
    pub thread: String,
    /// Thread id.
    pub tid: i32,
    /// CPU on which the thread ran after the delay.
    pub cpu: Cpu,
    /// First CPU that the thread waited for, if known and different from `cpu`. The activities in
    /// this delay ran on that CPU.
    #[serde(default)]
    pub waited_on: Option<Cpu>,
    /// Start, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length of the delay.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Activities on the CPU that the thread waited for, in order. If there are too many to list,
    /// they are grouped by source, largest total time first.
    pub timeline: Vec<Episode>,
    /// Number of episodes not listed in `timeline`.
    #[serde(alias = "more")]
    pub episodes_left_out: u64,
    /// Source that woke the thread, if it was woken and the kernel reported it.
    #[serde(default)]
    pub woken_by: Option<String>,
    /// Programs and kernel activities that ran during the delay, with one entry per program,
    /// largest total time first.
    #[serde(default, alias = "lost_to")]
    pub ran: Vec<LostTo>,
    /// Limit that held back a real-time thread, if nothing of higher priority used the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<RealTimeLimit>,
}

impl Delay {
    /// The delay's interval in the recording, with the CPU that the thread waited for.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.waited_on.unwrap_or(self.cpu),
        }
    }
}

/// The part of a delay caused by one program, kernel thread or interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostTo {
    /// Name of the program, kernel thread or interrupt.
    pub name: String,
    /// Kind of activity. [`Kind::Idle`] for a CPU that ran nothing.
    pub kind: Kind,
    /// Process ids, if the activity is a program.
    pub pids: Vec<i32>,
    /// Total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
}

/// One activity on the CPU during a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Episode {
    /// Start, relative to the start of the delay.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length within the delay.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Number of occurrences. More than 1 only if the delay had too many episodes to list
    /// separately.
    pub count: u64,
    /// Name of the source.
    pub name: String,
    /// Kind of activity.
    pub kind: Kind,
    /// Process id, if the source is a program.
    pub pid: Option<i32>,
    /// Program name, if the source is a thread of a program.
    #[serde(default)]
    pub program: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{MOVED, OffCpuReason};

    #[test]
    fn wait_details_round_trip() {
        for cause in OffCpuReason::ALL {
            assert_eq!(
                OffCpuReason::from_detail(cause.name()),
                Some((cause, false))
            );
            let moved = format!("{}{MOVED}", cause.name());
            assert_eq!(OffCpuReason::from_detail(&moved), Some((cause, true)));
        }
        assert_eq!(OffCpuReason::from_detail("tick_nohz_handler"), None);
    }
}
