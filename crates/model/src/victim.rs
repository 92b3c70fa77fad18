//! The program whose time is asked for: what a recording keeps of it, and what a statement says.

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

/// What is appended to a wait's cause when it ended on another CPU than it began on.
pub const MOVED: &str = ", moved";

/// What ticktax itself is called where it ran instead of a program.
pub const TOOL: &str = "ticktax";
/// And its probes.
pub const PROBE: &str = "ticktax's probe";

/// Why a thread was off its CPU: the `detail` of a recording's waits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OffCpuReason {
    /// It may run since something woke it.
    Woken,
    /// It may run, and gave way to another.
    Preempted,
    /// The CPU quota of its cgroup is used up.
    Throttled,
    /// It waits for something, and a signal would wake it: input, a timer, a futex.
    Sleeping,
    /// It waits for a disk.
    Disk,
    /// It waits for something else that no signal interrupts: mostly a lock of the kernel's.
    Lock,
    /// It is stopped or frozen.
    Stopped,
    /// Not known: the kernel did not tell when it left its CPU.
    Missed,
    /// No time: from here on the thread's number is a new thread's.
    Reborn,
}

impl OffCpuReason {
    /// Every cause.
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

    /// The word for it, as files write it.
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

    /// The cause that a wait's detail names, and whether the thread had moved.
    pub fn from_detail(detail: &str) -> Option<(Self, bool)> {
        let (name, moved) = match detail.strip_suffix(MOVED) {
            Some(name) => (name, true),
            None => (detail, false),
        };
        let cause = Self::ALL.into_iter().find(|cause| cause.name() == name)?;
        Some((cause, moved))
    }
}

/// The accounts of a victim, in the order in which a statement lists them. Every moment of each of
/// its threads is in exactly one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// On a CPU, and really running.
    Running,
    /// On a CPU, in a page fault.
    PageFault,
    /// On a CPU, reclaiming memory because there was none left.
    Reclaim,
    /// On a CPU that ran interrupts, softirqs or NMIs meanwhile.
    Interrupted,
    /// Able to run, and waiting for a CPU.
    Waiting,
    /// Able to run, and not allowed to by the quota of its cgroup.
    Throttled,
    /// Waiting for something: input, a timer, a futex.
    Sleeping,
    /// Waiting for a disk.
    Disk,
    /// Waiting for a lock of the kernel's, or for something else that no signal interrupts.
    Lock,
    /// Stopped or frozen.
    Stopped,
    /// Not seen: events were lost, or it was on a CPU that was not watched.
    Unseen,
}

impl ThreadState {
    /// Every account.
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

    /// Whether the program wanted to run meanwhile.
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
    fn from(absence: OffCpuReason) -> Self {
        match absence {
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

/// What happened to a victim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VictimStatement {
    /// How it was named.
    pub target: Target,
    /// The name of its program, or of its cgroup.
    pub name: String,
    /// Its process id, where it is one process.
    pub pid: Option<i32>,
    /// Whether it is known to have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// What the tracer saw of its threads; `None` where they could not be followed.
    pub threads: Option<ThreadTimes>,
    /// What the kernel's own counters say that it used meanwhile.
    pub usage: Option<Usage>,
    /// The counters of its cgroup's CPU quota, for the time of the audit.
    pub throttling: Option<Throttling>,
    /// What the hypervisor's clock says that it took from all CPUs meanwhile, whatever ran there; `None`
    /// where there is no such clock, or one that has never run.
    #[serde(rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// Its frames, where it is a process one of whose threads wakes at regular times.
    #[serde(default)]
    pub frames: Option<Box<ProgramFrames>>,
}

/// What became of the frames of a program that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramFrames {
    /// The name of the thread with the clearest rhythm.
    pub thread: String,
    /// Its number.
    pub tid: i32,
    /// The frames.
    pub figures: Figures,
    /// What held up those that were late; `None` where none was, or that was not asked for.
    #[serde(default)]
    pub late: Option<LateFrames>,
}

/// The lives of a victim's threads, within the books.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTimes {
    /// How many processes were seen.
    pub processes: u64,
    /// How many threads.
    pub threads: u64,
    /// From the first moment of each thread to its last, added up.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// The sum of the accounts, computed from them.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// Threads whose own sum differs from their elapsed time, and by how much.
    #[serde(rename = "off_ns")]
    pub off: Vec<(i32, Nanos)>,
    /// The accounts that have any time, in the order of [`ThreadState`].
    pub accounts: Vec<StateAccount>,
    /// From a wake-up until the thread ran.
    pub latency: Option<Latency>,
    /// The histogram of that; empty buckets are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_buckets: Vec<Bucket>,
    /// Waits that ended on another CPU than the thread had run on before.
    pub migrations: u64,
    /// Who ran on the CPU that it waited for, the costliest first.
    pub behind: Vec<Interferer>,
    /// The CPUs on which it waited behind others for a hundredth of that time or more.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub waited_on: CpuList,
    /// What interrupted it, the costliest first.
    pub interrupted_by: Vec<Interferer>,
    /// The longest delays, longest first.
    pub delays: Vec<Delay>,
    /// Waits for a CPU on which nobody went before its real-time threads, and what kept these from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
}

impl ThreadTimes {
    /// Whether every nanosecond of every thread is in exactly one account.
    pub fn balances(&self) -> bool {
        self.off.is_empty() && self.elapsed == self.accounted
    }
}

/// One account of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateAccount {
    /// Which.
    pub state: ThreadState,
    /// Time, of all threads together.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How many intervals.
    pub count: u64,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// How late threads ran after they were woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// How many wake-ups.
    pub count: u64,
    /// From a wake-up until the thread ran.
    #[serde(flatten)]
    pub lengths: Lengths,
}

/// Who had the time that a victim wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interferer {
    /// A program, a thread of the kernel, an interrupt; `idle` for a CPU that ran nothing, and
    /// `idle, moved` where the thread then ran on another.
    pub name: String,
    /// What the CPU was doing.
    pub kind: Kind,
    /// Its process id, where it is a program.
    pub pid: Option<i32>,
    /// The program that it is a thread of, where it is a program's.
    #[serde(default)]
    pub program: Option<String>,
    /// How many of its threads these are.
    #[serde(default)]
    pub threads: u64,
    /// Whether it is the watched program itself: another of its threads, or a child of it.
    #[serde(default)]
    pub own: bool,
    /// For how long.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// In how many intervals.
    pub count: u64,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Of an idle CPU that was waited for: whether the thread then ran on another one, so that this is
    /// what moving it took.
    #[serde(default)]
    pub moved: bool,
    /// The period in which the threads run that had most of this, ns, where a beat of theirs was found, none of
    /// them had the CPU for as long at a time, and most of this they had when they beat.
    #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
    pub period: Option<f64>,
    /// How its process is scheduled, where that is not by the ordinary rules, and the same for each of its threads that
    /// others waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SpecialPolicy>,
}

/// What kind of delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayKind {
    /// The thread was woken and waited for a CPU.
    Woken,
    /// The thread gave way to another.
    Preempted,
    /// The thread's CPU ran interrupts.
    Interrupted,
    /// The CPU quota of the thread's cgroup was used up.
    Throttled,
    /// The thread's cgroup had got CPU time again, and the thread waited for a CPU.
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

/// A stretch for which a thread wanted to run and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    /// What kind.
    pub kind: DelayKind,
    /// The thread's name.
    pub thread: String,
    /// Its number.
    pub tid: i32,
    /// The CPU that it then ran on.
    pub cpu: Cpu,
    /// The CPU that it waited for at first, where that is known to be another: what ran there is what it
    /// waited behind.
    #[serde(default)]
    pub waited_on: Option<Cpu>,
    /// When, since the recording began.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// What the CPU that it waited for did meanwhile, in order; or by who it was, the costliest first, where it was
    /// too much to list in order.
    pub timeline: Vec<Episode>,
    /// How many further episodes there were.
    pub more: u64,
    /// What had woken the thread, where it was woken and the kernel reported by what.
    #[serde(default)]
    pub woken_by: Option<String>,
    /// Who had that CPU meanwhile, each program as one, the costliest first.
    #[serde(default)]
    pub lost_to: Vec<LostTo>,
    /// What kept a real-time thread from that CPU, where nobody who had it goes before such a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<RealTimeLimit>,
}

impl Delay {
    /// Where to look for it: on the CPU that the thread waited for.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.waited_on.unwrap_or(self.cpu),
        }
    }
}

/// What a program, a thread of the kernel or an interrupt had of a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostTo {
    /// The name of the program, the thread of the kernel or the interrupt.
    pub name: String,
    /// What kind of source that is; a CPU that ran nothing is idle.
    pub kind: Kind,
    /// Its processes, where it is a program.
    pub pids: Vec<i32>,
    /// For how long.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// In how many stretches.
    pub count: u64,
}

/// An episode of a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Episode {
    /// When, since the delay began.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long, as far as it lies in the delay.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// How many times, where a delay had too many to list each.
    pub count: u64,
    /// Who ran.
    pub name: String,
    /// What the CPU was doing.
    pub kind: Kind,
    /// The process, where it was a program's.
    pub pid: Option<i32>,
    /// The program that it is a thread of, where it was a program's.
    #[serde(default)]
    pub program: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{MOVED, OffCpuReason};

    #[test]
    fn a_detail_reads_back_as_what_it_was_written_for() {
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
