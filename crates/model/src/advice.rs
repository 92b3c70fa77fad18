//! What a person can do about lost CPU time, with the evidence for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::policy::SpecialPolicy;
use crate::real_time::RealTimeHeld;
use crate::{CpuList, Nanos};

/// Something to do, and the measurement that says so. Its `id` is stable. Words and commands are
/// the report's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Advice {
    /// A program whose threads run at regular times had the CPU while the watched program waited for it.
    PeriodicProgram {
        /// Its name.
        program: String,
        /// Its process.
        pid: i32,
        /// The period of the beat of those threads that had most of its time, ns.
        #[serde(rename = "period_ns")]
        period: f64,
        /// What makes these run, where the kernel reported it: a timer's function.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// How it is scheduled, where that is not by the ordinary rules.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<SpecialPolicy>,
        /// The CPUs that they were seen on.
        cpus: CpuList,
        /// The CPUs to move it to: online, not set apart, and none on which the watched program waited for long;
        /// `None` where there is no other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_cpus: Option<CpuList>,
        /// The time that these threads had while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// The longest stretch of that.
        #[serde(rename = "max_ns")]
        max: Nanos,
        /// Whether it has ended.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Programs had much of the time for which the watched program waited.
    CrowdingPrograms {
        /// Which, the one with the most first.
        programs: Vec<CrowdingProgram>,
        /// The time that they had while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// That as a share of all the waiting for a CPU, 0 to 1.
        share: f64,
    },
    /// The watched program's threads waited for each other.
    OwnThreads {
        /// Its threads, those included that ended.
        threads: u64,
        /// The time for which one waited while another ran.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// That as a share of all the waiting for a CPU, 0 to 1.
        share: f64,
    },
    /// A thread of the kernel had much of the time for which the watched program waited.
    CrowdingKernelThread {
        /// Its name.
        name: String,
        /// The time that it had while the watched program waited.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// That as a share of all the waiting for a CPU, 0 to 1.
        share: f64,
    },
    /// A CPU quota kept a program from running.
    Throttled {
        /// The program.
        program: String,
        /// Its process.
        pid: Option<i32>,
        /// The folder of its cgroup, where that is known.
        cgroup: Option<String>,
        /// For how long, the times of its threads added up; where no program is watched, until they ran again,
        /// so with their wait for a CPU once there was quota.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// How often.
        count: u64,
        /// Whether the process has ended.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Others waited for a CPU while a process had it that goes before every ordinary thread.
    RealTimeFirst {
        /// Its name.
        program: String,
        /// Its process.
        pid: i32,
        /// How it is scheduled.
        policy: SpecialPolicy,
        /// The period of the costliest beat of its threads that a timer was seen to cause, ns.
        #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// That timer's function.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<String>,
        /// For how long others waited meanwhile, added up.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// The program that waited longest of them.
        waiter: String,
        /// A process of that which was there at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiter_pid: Option<i32>,
        /// Whether it has ended.
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Real-time threads were kept from a CPU on which nobody went before them.
    RealTimeHeld {
        /// Which, and by what.
        #[serde(flatten)]
        held: RealTimeHeld,
        /// Whether others waited for it longer than that: there the limit did what it is for.
        #[serde(default, skip_serializing_if = "is_false")]
        costly: bool,
    },
    /// Interrupts and softirqs took much of the time for which a program wanted to run.
    Interrupts {
        /// The one that took most.
        name: String,
        /// The time of that one.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// That as a share of the time of all of them, 0 to 1.
        #[serde(default)]
        largest_share: f64,
        /// The time of all of them, as a share of the time that the program wanted, 0 to 1.
        share: f64,
    },
    /// Page faults took much of the time for which the watched program wanted to run.
    PageFaults {
        /// How long they took.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// How many.
        count: u64,
        /// As a share of the time that the program wanted, 0 to 1.
        share: f64,
    },
    /// The watched program had to free memory before it got some.
    MemoryReclaim {
        /// How long that took.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// The hypervisor had the CPUs, whatever it did: outside and steal.
    Stolen {
        /// For how long, on all CPUs together.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// As a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// Threads wanted more CPU time than there is: together they ran and waited for longer than the CPUs have.
    Overbooked {
        /// The CPUs that there are.
        cpus: u64,
        /// The CPUs that threads wanted: as many as ran or waited for one, in the mean over the time watched.
        wanted_cores: f64,
        /// The program that wanted most; its time is for how long it ran and waited.
        #[serde(flatten)]
        most: CrowdingProgram,
        /// That as a share of what all threads wanted, 0 to 1.
        share: f64,
        /// Whether waits are not known: the CPUs that were wanted are by samples of the run queue, the program is the
        /// one that ran for longest, its time is for how long, and the share is of the time that all threads ran.
        #[serde(default, skip_serializing_if = "is_false")]
        sampled: bool,
    },
    /// The CPUs were busy nearly all of the time.
    CpusFull {
        /// The share of their time for which they were, 0 to 1.
        busy_share: f64,
        /// The program that took most; its time is for how long it ran.
        #[serde(flatten)]
        most: CrowdingProgram,
        /// That as a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// An interrupt, a softirq or a thread of the kernel took much of all CPUs' time.
    KernelWork {
        /// Its name.
        name: String,
        /// The part of it that took most, where it has any.
        part: Option<String>,
        /// The time of that part as a share of its time, 0 to 1; 0 where there is none.
        #[serde(default)]
        largest_share: f64,
        /// How long.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// As a share of the time of all CPUs, 0 to 1.
        share: f64,
    },
    /// Something configured is not in effect, and costs CPU time now: one of the findings.
    Finding {
        /// The rule that found it.
        rule: String,
        /// What is wrong, in a line.
        title: String,
        /// What to do.
        remedy: String,
        /// A setting that does it, or shows what it is worth.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<KnobProposal>,
    },
    /// Events were lost, so that a part of the time has no name.
    EventsLost {
        /// How many.
        events: u64,
    },
}

/// Which of a program's processes a nice value does not help against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// Those that had ended when the recording did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<i32>,
    /// Those of the others most of whose time was of real-time threads, which go before all ordinary ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<i32>,
    /// Those of the rest all of whose time was of threads that have the lowest priority already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowest: Vec<i32>,
    /// Those of the rest that are not known to be in the session of who is to gain, where CPU time is shared by
    /// session first: in another, or in a control group with a share of its own, or nobody knows where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<i32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A program that others wait for, all of its processes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrowdingProgram {
    /// Its name.
    pub program: String,
    /// Its processes.
    pub pids: Vec<i32>,
    /// A process of each group by session that these are in, where the watched program, or else the one that
    /// waited most besides, is in none of them: CPU time is shared between such groups first, so that a process' own nice value does not
    /// matter between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autogroup_pids: Vec<i32>,
    /// What is known of the processes.
    #[serde(flatten)]
    pub standing: Standing,
    /// The time that it had while the watched program waited, or in all.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
