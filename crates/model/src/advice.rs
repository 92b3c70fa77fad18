//! Advice: what to do about lost CPU time, and the evidence for it.

mod contest;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::contest::{Contender, ContenderKind, GroupContest};
use crate::knob::KnobProposal;
use crate::machine::MemoryLimit;
use crate::policy::SpecialPolicy;
use crate::real_time::RealTimeHeld;
use crate::statement::StartedProcesses;
use crate::victim::{BusyThread, DeadlineBudget, HoldUp, LateCause, Stall};
use crate::{CpuList, Nanos};

/// A recommended action, with the measurements that support it. Each kind of advice has a stable
/// `id`. `ticktax-report` chooses the wording and the commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Advice {
    /// A periodic program occupied the CPU while the watched program waited for it.
    PeriodicProgram {
        /// Program name.
        program: String,
        /// Process id.
        pid: i32,
        /// Period, in ns, of the threads that account for most of the program's CPU time.
        #[serde(rename = "period_ns")]
        period: f64,
        /// Kernel timer function that wakes these threads, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Scheduling policy of the threads, if it is not the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<SpecialPolicy>,
        /// CPUs on which these threads ran.
        cpus: CpuList,
        /// Candidate CPUs to move the program to: online, not isolated, and not ones where the
        /// watched program waited long. `None` if no CPU qualifies or if it is unknown where the
        /// watched program waited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_cpus: Option<CpuList>,
        /// Time that the periodic threads ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Longest single interval within `time`.
        #[serde(rename = "max_ns")]
        max: Nanos,
        /// Whether the periodic program has exited.
        #[serde(default, skip_serializing_if = "is_false", alias = "ended")]
        exited: bool,
    },
    /// Other programs caused much of the watched program's waiting.
    #[serde(alias = "crowding-programs")]
    CompetingPrograms {
        /// Programs that the watched program waited behind, largest share first.
        programs: Vec<CompetingProgram>,
        /// Time that these programs ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the watched program's run-queue waits, 0 to 1.
        share: f64,
    },
    /// Threads of the watched program waited for one another to leave the CPU.
    OwnThreads {
        /// Number of threads in the watched program, including those that exited.
        threads: u64,
        /// Time that threads of the watched program waited while another of its threads ran.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the watched program's run-queue waits, 0 to 1.
        share: f64,
    },
    /// A program starts many short-lived processes, which use much CPU time.
    ShortLivedProcesses {
        /// The processes, and the program that starts them.
        #[serde(flatten)]
        started: StartedProcesses,
        /// Number of processes per second.
        rate_hz: f64,
        /// CPU time of the processes as a share of the time of all CPUs, 0 to 1.
        share: f64,
        /// Time that threads of the watched program waited while the processes ran, as a share of
        /// its run-queue waits, 0 to 1. `None` if no program was watched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_share: Option<f64>,
    },
    /// A kernel thread caused much of the watched program's waiting.
    #[serde(alias = "crowding-kernel-thread")]
    CompetingKernelThread {
        /// Name of the kernel thread.
        name: String,
        /// Time that the kernel thread ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the watched program's run-queue waits, 0 to 1.
        share: f64,
    },
    /// A CPU quota throttled a program.
    Throttled {
        /// Program name.
        program: String,
        /// Process id.
        pid: Option<i32>,
        /// Path of the throttled cgroup, if known.
        cgroup: Option<String>,
        /// Time that the program's threads were throttled, summed over the threads. If no program
        /// is watched, each throttled interval lasts until the thread runs again, so it includes
        /// the run-queue wait after the throttling.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Quota burst that would have kept the program from being throttled; `None` if it is
        /// unknown or if no burst suffices.
        #[serde(default, rename = "burst_ns", skip_serializing_if = "Option::is_none")]
        burst: Option<Nanos>,
        /// Number of throttled intervals.
        count: u64,
        /// Whether the throttled process has exited.
        #[serde(default, skip_serializing_if = "is_false", alias = "ended")]
        exited: bool,
        /// Thread that used more than half of the program's CPU time, if the program has several
        /// threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        busiest: Option<BusyThread>,
        /// CPU time of `busiest` as a share of the program's CPU time, 0 to 1. It is 0 without a
        /// `busiest` thread.
        #[serde(default, skip_serializing_if = "is_none")]
        busiest_share: f64,
    },
    /// Other threads waited for a CPU while a process with real-time priority ran.
    #[serde(alias = "real-time-first")]
    RealTimePriority {
        /// Program name.
        program: String,
        /// Process id.
        pid: i32,
        /// Scheduling policy.
        policy: SpecialPolicy,
        /// Period, in ns, of the periodic threads that used most of the process's CPU time. `None`
        /// unless a timer was observed to start them.
        #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// Kernel function of the timer that starts these threads, if one was observed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Total time that other threads waited behind the real-time process.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Program that waited longest behind the real-time process.
        waiter: String,
        /// Process id of the waiting program. If the program has several processes, this is one
        /// that had not exited by the end of the recording.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiter_pid: Option<i32>,
        /// Whether the real-time process has exited.
        #[serde(default, skip_serializing_if = "is_false", alias = "ended")]
        exited: bool,
    },
    /// The kernel's limit on real-time threads held some of them back even though no thread of
    /// higher priority was runnable.
    #[serde(alias = "real-time-held")]
    RealTimeLimited {
        /// The threads and the limit.
        #[serde(flatten)]
        held: RealTimeHeld,
        /// Whether other threads waited even longer behind these real-time threads. If so, the
        /// limit served its purpose.
        #[serde(default, skip_serializing_if = "is_false")]
        costly: bool,
    },
    /// The watched program stalled for a reason other than a busy CPU: for example, it was frozen,
    /// waited for a lock, or was busy in a system call.
    Stalled {
        /// The stalls.
        #[serde(flatten)]
        stall: Stall,
        /// These stalls as a share of all stall time, 0 to 1.
        share: f64,
        /// Path of the program's freezer cgroup, if the program was frozen and the path is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        freezer: Option<String>,
        /// Memory limit that one of the program's cgroups reached during the recording, if the
        /// stalls are waits for memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory_limit: Option<MemoryLimit>,
        /// `SCHED_DEADLINE` budget that the program's frames would fit into, if the stalls are
        /// pauses after the present budget ran out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<NeededBudget>,
    },
    /// The cpuset of the watched program's cgroup keeps it on busy CPUs while others are idle.
    ConfinedToCpus {
        /// File that restricts the program to these CPUs.
        file: String,
        /// CPUs that the program may use. They were busy at least 90 % of the time.
        cpus: CpuList,
        /// Other CPUs that are not isolated and were idle at least half of the time.
        idle_cpus: CpuList,
        /// `cpus` and `idle_cpus` together.
        proposed_cpus: CpuList,
        /// Idle share of the least idle CPU in `idle_cpus`, 0 to 1.
        idle_share: f64,
        /// Time that the program waited for a CPU.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// Interrupts and softirqs took up much of the time when a program was runnable.
    Interrupts {
        /// Name of the interrupt or softirq that took the most time.
        name: String,
        /// Time that this interrupt or softirq took.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all interrupts and softirqs, 0 to 1.
        #[serde(default)]
        largest_share: f64,
        /// Time of all interrupts and softirqs as a share of the program's runnable time, 0 to 1.
        share: f64,
    },
    /// Page faults took up much of the watched program's runnable time.
    PageFaults {
        /// Total time spent in page faults.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of page faults.
        count: u64,
        /// `time` as a share of the program's runnable time, 0 to 1.
        share: f64,
    },
    /// The watched program had to reclaim memory before it could allocate.
    MemoryReclaim {
        /// Total time spent in reclaim.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Memory limit that one of the program's cgroups reached during the recording.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<MemoryLimit>,
    },
    /// The hypervisor held the CPUs. Its time consists of stolen time and gaps in which the kernel
    /// provably ran nothing.
    Stolen {
        /// Total time that the hypervisor held CPUs, summed over all of them.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// Threads demanded more CPU time than the machine has: their running and waiting times add up
    /// to more than the time of all CPUs.
    #[serde(alias = "overbooked")]
    CpusOversubscribed {
        /// Number of CPUs.
        cpus: u64,
        /// Mean number of threads that were running or waiting for a CPU.
        #[serde(alias = "wanted_cores")]
        demand_cores: f64,
        /// Program with the largest demand. Its `time` is the sum of its running and waiting times.
        #[serde(flatten)]
        most: CompetingProgram,
        /// Time of the program in `most` as a share of all threads' running and waiting times, 0 to
        /// 1.
        share: f64,
        /// Whether the demand is only an estimate from samples of the run queue, because waits are
        /// unknown. If so, `most` is the program that ran longest, its `time` is its running time,
        /// and `share` is its share of all threads' running time.
        #[serde(default, skip_serializing_if = "is_false")]
        sampled: bool,
    },
    /// The CPUs were busy nearly all the time.
    #[serde(alias = "cpus-full")]
    CpusSaturated {
        /// Busy time as a share of the time of all CPUs, 0 to 1.
        busy_share: f64,
        /// Program that used the most CPU time. Its `time` is its running time.
        #[serde(flatten)]
        most: CompetingProgram,
        /// Time of the program in `most` as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// An interrupt, softirq or kernel thread used much of the time of all CPUs.
    KernelWork {
        /// Name of the interrupt, softirq or kernel thread.
        name: String,
        /// The part of this work that took the most time, if the work is divided into parts.
        part: Option<String>,
        /// Time of `part` as a share of `time`, 0 to 1. It is 0 if the work has no parts.
        #[serde(default)]
        largest_share: f64,
        /// Total time of the work.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// A setting that is configured but not in effect is costing CPU time now. It is also among the
    /// statement's findings.
    Finding {
        /// Rule that produced the finding.
        rule: String,
        /// One-line summary.
        title: String,
        /// Recommended action.
        remedy: String,
        /// A setting that fixes the problem, or that shows how much a fix would gain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<KnobProposal>,
    },
    /// Events were lost, so part of the time is unexplained.
    EventsLost {
        /// Number of lost events.
        events: u64,
    },
}

impl Advice {
    /// Returns whether this advice addresses the given cause of late frames.
    pub fn is_about(&self, cause: &LateCause) -> bool {
        let name = cause.culprit.as_ref().map(|by| &*by.name);
        match (cause.kind, self) {
            (HoldUp::Waiting, Self::PeriodicProgram { program, .. }) => name == Some(program),
            (HoldUp::Waiting, Self::CompetingPrograms { programs, .. }) => programs
                .iter()
                .any(|competing| name == Some(&competing.program)),
            (HoldUp::Waiting, Self::CompetingKernelThread { name: thread, .. }) => {
                name == Some(thread)
            }
            (HoldUp::Waiting, Self::ConfinedToCpus { .. })
            | (HoldUp::Interrupts, Self::Interrupts { .. })
            | (HoldUp::Quota, Self::Throttled { .. })
            | (HoldUp::RealTimeLimit, Self::RealTimeLimited { .. })
            | (HoldUp::Steal, Self::Stolen { .. })
            | (HoldUp::PageFaults, Self::PageFaults { .. })
            | (HoldUp::Reclaim, Self::MemoryReclaim { .. }) => true,
            (kind, Self::Stalled { stall, .. }) => stall.kind == kind,
            _ => false,
        }
    }
}

/// A `SCHED_DEADLINE` budget that is too small, and one that would be enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededBudget {
    /// The present budget.
    #[serde(flatten)]
    pub budget: DeadlineBudget,
    /// CPU time of the longest frame.
    #[serde(rename = "used_ns")]
    pub used: Nanos,
    /// Number of frames measured.
    pub frames: u64,
    /// Proposed CPU time per period: `used` plus a tenth, rounded up to 0.1 ms.
    #[serde(rename = "needed_ns")]
    pub needed: Nanos,
}

/// Processes that would not slow down if their nice value were raised, grouped by reason. All
/// belong to one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExemptPids {
    /// Processes that had exited by the end of the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "ended")]
    pub exited_pids: Vec<i32>,
    /// Running processes that spent most of their time in real-time threads, which run before all
    /// ordinary threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "real_time")]
    pub real_time_pids: Vec<i32>,
    /// Remaining processes all of whose threads already have the lowest priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "lowest")]
    pub lowest_priority_pids: Vec<i32>,
    /// Remaining processes that are not known to share a session with the program that should
    /// benefit. The kernel first divides CPU time between sessions, so a nice value has no effect
    /// outside its session. The list includes processes whose session is unknown, and processes in
    /// a different cgroup with a CPU weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "apart")]
    pub other_session_pids: Vec<i32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires this signature"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A program that other threads wait behind, with all its processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompetingProgram {
    /// Program name.
    pub program: String,
    /// Process ids of the program.
    pub pids: Vec<i32>,
    /// One process from each of the program's autogroups. The kernel first divides CPU time between
    /// autogroups, so a nice value has no effect outside its autogroup. The list is empty if one of
    /// these autogroups contains the program that should benefit: the watched program or, if none
    /// is watched, the other program that waited most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autogroup_pids: Vec<i32>,
    /// Processes that would not slow down if their nice value were raised.
    #[serde(flatten)]
    pub standing: ExemptPids,
    /// Contest between two cgroups or sessions: that of the program that should benefit, and that
    /// of this program's longest-running process. `None` if both are in the same cgroup, or if
    /// either cgroup is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contest: Option<Box<GroupContest>>,
    /// Time that the program ran while the watched program waited. If no program is watched, its
    /// total running time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_none(share: &f64) -> bool {
    *share <= 0.0
}
