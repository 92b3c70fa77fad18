//! The victim: the program or cgroup that an analysis is about. This module covers its data in a
//! recording and its analysis in a statement.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod header;
mod late;
mod off_cpu;
mod stall;

pub use header::{
    DeadlineBudget, FollowedThread, RunState, ShortCalls, Target, ThreadUsage, ThreadUsages, Usage,
    VictimHeader,
};
pub use late::{HoldUp, LateCause, LateFrame, LateFrames, LateTime, ThreadPolicy};
pub use off_cpu::{MMAP_LOCK, MOVED, OffCpu, OffCpuReason, PAGE_FAULT_ENTRY};
pub use stall::{
    Blocked, BlockedCode, BlockedOn, BusyThread, DelayPlace, EndedBy, Release, ShortLived, Stall,
    StallMoment, StallSeries, StalledThread, StalledThreads, WaitPlace,
};

use crate::histogram::Bucket;
use crate::machine::{MemoryLimit, Throttling};
use crate::pace::Figures;
use crate::policy::SpecialPolicy;
use crate::real_time::{RealTimeHeld, RealTimeLimit};
use crate::sampled_code::SampledCode;
use crate::{Cpu, CpuList, Kind, Lengths, Moment, Nanos};

/// Name used for ticktax in lists of programs that ran while the victim waited.
pub const TOOL: &str = "ticktax";
/// Name used for ticktax's probes in lists of programs that ran while the victim waited.
pub const PROBE: &str = "ticktax's probe";

/// A single wait of at least this length counts as a delay, even if waits are rare.
pub const LONG_WAIT: Nanos = Nanos::from_millis(10);
/// A program that lost less than this in total was not delayed. It may have needed so little CPU
/// time that even this is a large share of it.
pub const LITTLE_DELAY: Nanos = Nanos::from_millis(1);

/// States of a victim's threads, in the order in which a statement lists them. A thread is in
/// exactly one state at any time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// On a CPU, running its own code or a short system call.
    Running,
    /// On a CPU, in a system call that has run for at least 50 µs without a break.
    SystemCall,
    /// On a CPU, handling a page fault.
    PageFault,
    /// On a CPU, reclaiming memory.
    Reclaim,
    /// On a CPU, interrupted by an interrupt, softirq or NMI.
    Interrupted,
    /// Runnable, waiting for a CPU.
    Waiting,
    /// Runnable, but throttled by its cgroup's quota.
    Throttled,
    /// Runnable, but the thread has used up its own `SCHED_DEADLINE` budget for this period.
    Deadline,
    /// Runnable, but kept from running by a limit on real-time threads: real-time throttling or the
    /// fair server.
    RealTimeLimit,
    /// Blocked on input, a timer, a futex or something similar.
    Sleeping,
    /// Blocked on a disk.
    Disk,
    /// Blocked in another uninterruptible sleep, usually on a kernel lock.
    Lock,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Frozen by a freezer, for example that of a cgroup.
    Frozen,
    /// Unknown, because events were lost or the thread ran on a CPU that was not watched.
    Unseen,
}

impl ThreadState {
    /// All states.
    pub const ALL: [Self; 15] = [
        Self::Running,
        Self::SystemCall,
        Self::PageFault,
        Self::Reclaim,
        Self::Interrupted,
        Self::Waiting,
        Self::Throttled,
        Self::Deadline,
        Self::RealTimeLimit,
        Self::Sleeping,
        Self::Disk,
        Self::Lock,
        Self::Stopped,
        Self::Frozen,
        Self::Unseen,
    ];

    /// Returns whether a thread in this state is runnable.
    pub const fn is_wanted(self) -> bool {
        matches!(
            self,
            Self::Running
                | Self::SystemCall
                | Self::PageFault
                | Self::Reclaim
                | Self::Interrupted
                | Self::Waiting
                | Self::Throttled
                | Self::Deadline
                | Self::RealTimeLimit
        )
    }
}

impl From<OffCpuReason> for ThreadState {
    fn from(reason: OffCpuReason) -> Self {
        match reason {
            OffCpuReason::Woken | OffCpuReason::Preempted => Self::Waiting,
            OffCpuReason::Throttled => Self::Throttled,
            OffCpuReason::Sleeping | OffCpuReason::Reborn | OffCpuReason::Timer => Self::Sleeping,
            OffCpuReason::Disk => Self::Disk,
            OffCpuReason::Lock => Self::Lock,
            OffCpuReason::Stopped => Self::Stopped,
            OffCpuReason::Frozen => Self::Frozen,
            OffCpuReason::Deadline => Self::Deadline,
            OffCpuReason::Missed => Self::Unseen,
        }
    }
}

/// The analysis of the victim, the program or cgroup that an audit is about.
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
    /// Times that the victim's threads spent in each state; `None` if the tracer could not follow
    /// them.
    pub threads: Option<ThreadTimes>,
    /// Resource usage during the recording, according to the kernel's counters.
    pub usage: Option<Usage>,
    /// Growth of the counters of the victim's CPU quota during the audit.
    pub throttling: Option<Throttling>,
    /// Quota burst that would have kept the victim from being throttled. `None` if it is unknown,
    /// if the kernel has no bursts, or if it would not allow one of this size.
    #[serde(
        default,
        rename = "needed_burst_ns",
        skip_serializing_if = "Option::is_none"
    )]
    pub needed_burst: Option<Nanos>,
    /// Time stolen from all CPUs during the recording, according to the hypervisor's steal clock;
    /// `None` if the machine has no such clock or if the clock never advanced.
    #[serde(rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// The victim's frames; `None` unless the victim is a process with a thread that wakes up
    /// periodically.
    #[serde(default)]
    pub frames: Option<Box<ProgramFrames>>,
    /// Path of the cgroup whose freezer can freeze the victim; `None` if it is unknown or the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freezer: Option<String>,
    /// The memory limit, among those of the victim's cgroups, that was reached most often during
    /// the recording; `None` if no limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
}

/// The frames of a watched program's loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramFrames {
    /// Name of the thread that runs the loop: the one whose wake-ups have the clearest period.
    pub thread: String,
    /// Id of this thread.
    pub tid: i32,
    /// Frame statistics.
    pub figures: Figures,
    /// Causes of late frames; `None` if no frame was late or if the causes were not requested.
    #[serde(default)]
    pub late: Option<LateFrames>,
}

/// Times that the victim's threads spent in each state, over the interval that is accounted for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTimes {
    /// Number of processes.
    pub processes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Sum of the threads' lifetimes within the recording.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Sum of the times in all states, which must equal `elapsed`.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// Threads whose times in all states do not add up to their lifetime, each with the difference.
    #[serde(rename = "imbalances_ns", alias = "off_ns")]
    pub imbalances: Vec<(i32, Nanos)>,
    /// States in which any time was spent, in the order of [`ThreadState`].
    pub accounts: Vec<StateAccount>,
    /// Wake-up latency of the victim's threads; `None` if no wake-up was observed.
    pub latency: Option<Latency>,
    /// Histogram of the wake-up latency, without empty buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_buckets: Vec<Bucket>,
    /// Number of waits after which the thread ran on a different CPU than before.
    pub migrations: u64,
    /// Programs and kernel activities that ran on a CPU while the victim waited for it, largest
    /// total time first.
    pub behind: Vec<Interferer>,
    /// CPUs on which the victim waited while something else ran. CPUs with less than 1 % of this
    /// waiting time are omitted.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub waited_on: CpuList,
    /// Activities that interrupted the victim, largest total time first.
    pub interrupted_by: Vec<Interferer>,
    /// The victim's longest delays, longest first.
    pub delays: Vec<Delay>,
    /// Time that a limit kept the victim's real-time threads from running even though nothing of
    /// higher priority was runnable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
    /// Places in the kernel where the victim's threads were blocked, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<Blocked>,
    /// Number of waits whose user code was recorded, but is missing in `blocked` and `delays`
    /// because it did not fit into memory.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub codes_left_out: u64,
    /// Stalls of the victim by kind, costliest first. The cost is the delay of the victim's frames
    /// ([`LateTime::frame_delay`]) if the stalls made any late, and otherwise the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
    /// Processes that the victim started and that exited during the recording, by name, largest
    /// number first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_lived: Vec<ShortLived>,
    /// The victim's threads that used the most CPU time, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busiest: Vec<BusyThread>,
}

impl ThreadTimes {
    /// Returns the costliest kind of stall, if the program stalled at all.
    pub fn costliest(&self) -> Option<&Stall> {
        self.stalls.first()
    }

    /// Returns the total time of all stalls, summed over all threads.
    pub fn stalled(&self) -> Nanos {
        self.stalls.iter().map(|stall| stall.time).sum()
    }

    /// Returns whether every nanosecond of every thread is in exactly one state.
    pub fn balances(&self) -> bool {
        self.imbalances.is_empty() && self.elapsed == self.accounted
    }
}

/// Total time that the victim's threads spent in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateAccount {
    /// State.
    pub state: ThreadState,
    /// Total time in this state, summed over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// Wake-up latency of the victim's threads, which is how long they waited for a CPU after they were
/// woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Number of wake-ups.
    pub count: u64,
    /// Statistics of the time from a wake-up until the thread ran.
    #[serde(flatten)]
    pub lengths: Lengths,
}

/// A program or kernel activity that used CPU time while the victim was runnable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interferer {
    /// Name of the program, kernel thread or interrupt. If the CPU ran nothing, the name is `idle`
    /// or, if the thread then ran on another CPU, `idle, moved`.
    pub name: String,
    /// Kind of activity on the CPU.
    pub kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Name of the program, if the activity is a thread of a program.
    #[serde(default)]
    pub program: Option<String>,
    /// Number of this activity's threads whose time is included.
    #[serde(default)]
    pub threads: u64,
    /// Whether the activity belongs to the watched program itself, as one of its threads or child
    /// processes.
    #[serde(default, alias = "own")]
    pub same_program: bool,
    /// Total time that the victim lost because of the activity.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Whether the CPU was idle and the thread then ran on a different one. If so, the time is the
    /// cost of the migration.
    #[serde(default, alias = "moved")]
    pub migrated: bool,
    /// Period, in ns, of the threads that caused most of this time. Set only if they caused most of
    /// it in their periodic activity and never ran for an entire period without a break.
    #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
    pub period: Option<f64>,
    /// Scheduling policy of the process. Set only if it is not the default and all of the process's
    /// threads that others waited behind have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SpecialPolicy>,
    /// Code in which samples found the activity while the victim waited behind it. `None` without
    /// samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SampledCode>,
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
    /// The thread was throttled because its cgroup had used up its CPU quota.
    Throttled,
    /// The thread waited for a CPU after its cgroup was unthrottled.
    Unthrottled,
    /// The thread was blocked, frozen or stopped, or had used up its deadline budget.
    Blocked,
    /// The thread ran, but much longer than usual.
    OwnWork,
}

impl fmt::Display for DelayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Woken => "woken, then waiting",
            Self::Preempted => "preempted",
            Self::Interrupted => "interrupted",
            Self::Throttled => "throttled",
            Self::Unthrottled => "unthrottled, then waiting",
            Self::Blocked => "blocked",
            Self::OwnWork => "its own work",
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
    /// First CPU that the thread waited for; `None` if it is `cpu` or unknown. The activities in
    /// this delay ran on that CPU.
    #[serde(default)]
    pub waited_on: Option<Cpu>,
    /// Start of the delay, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length of the delay.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Activities on the CPU that the thread waited for, in time order. If there are too many to
    /// list separately, they are grouped by source, largest total time first.
    pub timeline: Vec<Episode>,
    /// Number of activities that are not listed in `timeline`.
    #[serde(alias = "more")]
    pub episodes_left_out: u64,
    /// Source that woke the thread; `None` if it was not woken or if the kernel did not report the
    /// source.
    #[serde(default)]
    pub woken_by: Option<String>,
    /// Programs and kernel activities that ran during the delay, largest total time first, with one
    /// entry per program.
    #[serde(default, alias = "lost_to")]
    pub ran: Vec<LostTo>,
    /// Limit that kept the real-time thread from running. Set only if nothing of higher priority
    /// used the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<RealTimeLimit>,
    /// Kind of stall and its place in the kernel. `None` if the thread waited for a CPU, was
    /// interrupted, or was throttled by a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<DelayPlace>,
}

impl Delay {
    /// Returns the interval of the delay in the recording, with the CPU that the thread waited for.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.waited_on.unwrap_or(self.cpu),
        }
    }
}

/// Part of one or more delays that one program, kernel thread or interrupt caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostTo {
    /// Name of the program, kernel thread or interrupt.
    pub name: String,
    /// Kind of activity. It is [`Kind::Idle`] if the CPU ran nothing.
    pub kind: Kind,
    /// Process ids, if the activity is a program.
    pub pids: Vec<i32>,
    /// Total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
}

/// An activity that used the CPU during a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Episode {
    /// Start of the activity, relative to the start of the delay.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length of the part of the activity that lies within the delay.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Number of times the activity occurred, which is more than 1 only if the delay had too many
    /// activities to list separately.
    pub count: u64,
    /// Name of the activity.
    pub name: String,
    /// Kind of activity.
    pub kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Name of the program, if the activity is a thread of a program.
    #[serde(default)]
    pub program: Option<String>,
}
