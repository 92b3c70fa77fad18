//! Advice: what to do about lost CPU time, with the evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::policy::SpecialPolicy;
use crate::real_time::RealTimeHeld;
use crate::{CpuList, Nanos};

/// A recommended action and the measurement that supports it. Its `id` is stable. Wording and
/// commands are up to the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Advice {
    /// A periodic program occupied the CPU while the watched program waited for it.
    PeriodicProgram {
        /// Program name.
        program: String,
        /// Process id.
        pid: i32,
        /// Period of its threads that used most of the time, in ns.
        #[serde(rename = "period_ns")]
        period: f64,
        /// Timer function that starts these threads, if the kernel reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Scheduling policy, if not the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<SpecialPolicy>,
        /// CPUs on which these threads ran.
        cpus: CpuList,
        /// CPUs to move it to: online, not isolated, and without long waits of the watched program;
        /// `None` if no CPU qualifies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_cpus: Option<CpuList>,
        /// Time that these threads ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Longest interval of that time.
        #[serde(rename = "max_ns")]
        max: Nanos,
        /// Whether it has exited.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Other programs caused much of the watched program's waiting.
    CrowdingPrograms {
        /// Programs, largest share first.
        programs: Vec<CrowdingProgram>,
        /// Time that they ran while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of all run-queue waits, 0 to 1.
        share: f64,
    },
    /// Threads of the watched program waited for each other.
    OwnThreads {
        /// Number of its threads, including those that exited.
        threads: u64,
        /// Time that one thread waited while another ran.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of all run-queue waits, 0 to 1.
        share: f64,
    },
    /// A kernel thread caused much of the watched program's waiting.
    CrowdingKernelThread {
        /// Thread name.
        name: String,
        /// Time that it ran while the watched program waited.
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
        /// Path of its cgroup, if known.
        cgroup: Option<String>,
        /// Total throttled time of its threads. If no program is watched, each interval lasts until
        /// the thread ran again, so it includes the run-queue wait after the throttling.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of times.
        count: u64,
        /// Whether the process has exited.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Other threads waited for a CPU while a process with real-time priority ran.
    RealTimeFirst {
        /// Program name.
        program: String,
        /// Process id.
        pid: i32,
        /// Scheduling policy.
        policy: SpecialPolicy,
        /// Period in ns of its costliest periodic threads, if a timer was seen to start them.
        #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// Function of that timer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// Total time that others waited behind it.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Program that waited longest behind it.
        waiter: String,
        /// A process of that program that still existed at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiter_pid: Option<i32>,
        /// Whether it has exited.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// A limit held back real-time threads although nothing of higher priority was runnable.
    RealTimeHeld {
        /// The threads and the limit.
        #[serde(flatten)]
        held: RealTimeHeld,
        /// Whether others waited behind these threads for even longer, so that the limit served its
        /// purpose.
        #[serde(default, skip_serializing_if = "is_false")]
        costly: bool,
    },
    /// Interrupts and softirqs used much of the time in which a program was runnable.
    Interrupts {
        /// Name of the largest one.
        name: String,
        /// Time of the largest one.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all of them, 0 to 1.
        #[serde(default)]
        largest_share: f64,
        /// Time of all of them as a share of the program's runnable time, 0 to 1.
        share: f64,
    },
    /// Page faults used much of the watched program's runnable time.
    PageFaults {
        /// Total time.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of page faults.
        count: u64,
        /// `time` as a share of the program's runnable time, 0 to 1.
        share: f64,
    },
    /// The watched program had to reclaim memory before it could allocate.
    MemoryReclaim {
        /// Total time.
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
    /// Threads demanded more CPU time than exists: their running and waiting times exceed the time
    /// of all CPUs.
    Overbooked {
        /// Number of CPUs.
        cpus: u64,
        /// Demand in CPUs: mean number of threads that ran or waited for a CPU.
        wanted_cores: f64,
        /// Program with the largest demand. Its time is the time that it ran and waited.
        #[serde(flatten)]
        most: CrowdingProgram,
        /// Its time as a share of the demand of all threads, 0 to 1.
        share: f64,
        /// Whether waits are unknown. The demand is then taken from samples of the run queue. The
        /// program is the one that ran longest, with its running time. The share refers to the
        /// running time of all threads.
        #[serde(default, skip_serializing_if = "is_false")]
        sampled: bool,
    },
    /// The CPUs were busy nearly all of the time.
    CpusFull {
        /// Busy time as a share of the time of all CPUs, 0 to 1.
        busy_share: f64,
        /// Program that used most CPU time. Its time is its running time.
        #[serde(flatten)]
        most: CrowdingProgram,
        /// Its time as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// An interrupt, softirq or kernel thread used much of the time of all CPUs.
    KernelWork {
        /// Name.
        name: String,
        /// Its largest part, if it has parts.
        part: Option<String>,
        /// Time of that part as a share of `time`, 0 to 1; 0 if it has no parts.
        #[serde(default)]
        largest_share: f64,
        /// Total time.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// `time` as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// A setting is configured but not in effect, which costs CPU time now. This is one of the
    /// findings.
    Finding {
        /// Rule that produced the finding.
        rule: String,
        /// One-line summary.
        title: String,
        /// Recommended action.
        remedy: String,
        /// A setting that fixes the problem or shows what fixing it gains.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<KnobProposal>,
    },
    /// Events were lost, so part of the time is unexplained.
    EventsLost {
        /// Number of events.
        events: u64,
    },
}

/// Processes of a program that a higher nice value would not slow down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// Processes that had exited when the recording ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<i32>,
    /// Other processes most of whose time was spent in real-time threads, which run ahead of all
    /// ordinary ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<i32>,
    /// Remaining processes whose threads all have the lowest priority already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowest: Vec<i32>,
    /// Remaining processes that are not known to share a session with the program that should gain.
    /// The kernel shares CPU time between sessions first. They are in another session or in a
    /// cgroup with a separate share, or their session is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<i32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires this signature"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A program that others wait behind, with all its processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrowdingProgram {
    /// Program name.
    pub program: String,
    /// Its processes.
    pub pids: Vec<i32>,
    /// One process from each autogroup of these processes. Empty if the watched program is in one
    /// of those groups. Without a watched program, the other program that waited most is used
    /// instead. CPU time is shared between autogroups first, so a process's nice value has no
    /// effect across them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autogroup_pids: Vec<i32>,
    /// Processes that a higher nice value would not slow down.
    #[serde(flatten)]
    pub standing: Standing,
    /// Time that it ran while the watched program waited, or in total.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
