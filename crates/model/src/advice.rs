//! Advice: what to do about lost CPU time, with the evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::policy::SpecialPolicy;
use crate::real_time::RealTimeHeld;
use crate::{CpuList, Nanos};

/// A recommended action and the measurement that supports it. Its `id` is stable. The report
/// chooses the wording and the commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Advice {
    /// A periodic program occupied the CPU while the watched program waited for it.
    PeriodicProgram {
        /// Program name.
        program: String,
        /// Process id.
        pid: i32,
        /// Period of the threads that used most of the program's time, in ns.
        #[serde(rename = "period_ns")]
        period: f64,
        /// Timer function that starts these threads, if the kernel reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Scheduling policy, if not the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<SpecialPolicy>,
        /// CPUs on which the periodic threads ran.
        cpus: CpuList,
        /// CPUs to move the program to: online, not isolated, and without long waits by the watched
        /// program; `None` if no CPU qualifies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_cpus: Option<CpuList>,
        /// Time that the periodic threads ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Longest uninterrupted part of `time`.
        #[serde(rename = "max_ns")]
        max: Nanos,
        /// Whether the program has exited.
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
        /// `time` as a share of all run-queue waits, 0 to 1.
        share: f64,
    },
    /// Threads of the watched program waited for each other.
    OwnThreads {
        /// Number of the watched program's threads, including those that exited.
        threads: u64,
        /// Time during which one of these threads waited while another ran.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of all run-queue waits, 0 to 1.
        share: f64,
    },
    /// A kernel thread caused much of the watched program's waiting.
    #[serde(alias = "crowding-kernel-thread")]
    CompetingKernelThread {
        /// Name of the kernel thread.
        name: String,
        /// Time that the kernel thread ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of all run-queue waits, 0 to 1.
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
        /// Total throttled time of the program's threads. Without a watched program, each throttled
        /// interval lasts until the thread runs again, so it includes the run-queue wait that
        /// follows.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of throttled intervals.
        count: u64,
        /// Whether the process has exited.
        #[serde(default, skip_serializing_if = "is_false", alias = "ended")]
        exited: bool,
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
        /// Period, in ns, of the process's costliest periodic threads, if a timer was seen to start
        /// them.
        #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// Function of the timer that starts these threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Total time that other threads waited behind the real-time process.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Program that waited longest behind the real-time process.
        waiter: String,
        /// A process of the waiting program that was still alive at the end of the recording.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiter_pid: Option<i32>,
        /// Whether the real-time process has exited.
        #[serde(default, skip_serializing_if = "is_false", alias = "ended")]
        exited: bool,
    },
    /// A limit held back real-time threads although nothing of higher priority was runnable.
    #[serde(alias = "real-time-held")]
    RealTimeLimited {
        /// The threads, and the limit that held them back.
        #[serde(flatten)]
        held: RealTimeHeld,
        /// Whether other threads waited even longer behind these threads. If so, the limit served
        /// its purpose.
        #[serde(default, skip_serializing_if = "is_false")]
        costly: bool,
    },
    /// Interrupts and softirqs used much of the time in which a program was runnable.
    Interrupts {
        /// Name of the costliest interrupt or softirq.
        name: String,
        /// Time that the costliest interrupt or softirq used.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all interrupts and softirqs, 0 to 1.
        #[serde(default)]
        largest_share: f64,
        /// Time of all interrupts and softirqs as a share of the program's runnable time, 0 to 1.
        share: f64,
    },
    /// Page faults used much of the watched program's runnable time.
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
    },
    /// The hypervisor held the CPUs: outside and stolen time.
    Stolen {
        /// Total time over all CPUs.
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
        /// Demand in CPUs: mean number of threads that ran or waited for a CPU.
        #[serde(alias = "wanted_cores")]
        demand_cores: f64,
        /// Program with the largest demand. Its `time` includes both running and waiting.
        #[serde(flatten)]
        most: CompetingProgram,
        /// That program's time as a share of the demand of all threads, 0 to 1.
        share: f64,
        /// Whether waits are unknown, so that the demand is estimated from samples of the run
        /// queue. If so, `most` is the program that ran longest, with its running time, and `share`
        /// is its share of all threads' running time.
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
        /// That program's time as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// An interrupt, softirq or kernel thread used much of the time of all CPUs.
    KernelWork {
        /// Name of the interrupt, softirq or kernel thread.
        name: String,
        /// The most expensive part of this work, if the work has parts.
        part: Option<String>,
        /// Time of `part` as a share of `time`, 0 to 1; 0 without parts.
        #[serde(default)]
        largest_share: f64,
        /// Total time of this work.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// A setting that is configured but not in effect costs CPU time now. This repeats one of the
    /// findings.
    Finding {
        /// Rule that produced the finding.
        rule: String,
        /// One-line summary.
        title: String,
        /// Recommended action.
        remedy: String,
        /// A setting that fixes the problem or shows what a fix would gain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<KnobProposal>,
    },
    /// Events were lost, so part of the time is unexplained.
    EventsLost {
        /// Number of lost events.
        events: u64,
    },
}

/// Processes of a program that raising their nice value would not slow down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExemptPids {
    /// Processes that had exited when the recording ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "ended")]
    pub exited_pids: Vec<i32>,
    /// Other processes that spent most of their time in real-time threads, which run before
    /// ordinary threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "real_time")]
    pub real_time_pids: Vec<i32>,
    /// Remaining processes whose threads are all at the lowest priority already.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "lowest")]
    pub lowest_priority_pids: Vec<i32>,
    /// Remaining processes not known to share a session with the program that should benefit: their
    /// session is another one or unknown, or their cgroup has its own share. The kernel divides CPU
    /// time between sessions first.
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
    /// One process from each of the program's autogroups. Empty if one of these autogroups also
    /// contains the watched program (or, if no program is watched, the other program that waited
    /// most). The kernel divides CPU time between autogroups first, so a nice value has no effect
    /// outside its autogroup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autogroup_pids: Vec<i32>,
    /// Processes that raising their nice value would not slow down.
    #[serde(flatten)]
    pub standing: ExemptPids,
    /// Time that the program ran: while the watched program waited, or in total.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
