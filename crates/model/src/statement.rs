//! The statement: the accounts of a recording, with everything derived from them, ready to be
//! printed.
//!
//! A statement contains every number that is shown. Code that renders it computes only shares and
//! units, so the terminal, JSON and other formats cannot disagree.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Pressure, RunQueue};
use crate::profile::Profile;
use crate::recording::{
    ClockReport, CommandReport, Coverage, Level, ProbeKind, ProbeReport, RecordingPart, SoakReport,
    ToolCost, World,
};
use crate::sampled_code::SampledSource;
use crate::victim::{OffCpuReason, ThreadTimes, VictimStatement};
use crate::{Cpu, Intervals, Moment, Nanos};

mod class;

pub use class::{Class, Holder};

/// The accounts of a recording, and everything derived from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// Whether the recording comes from a real machine, a lab guest or the simulator.
    pub world: World,
    /// Capability level, which limits what could be observed.
    pub level: Level,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Position within a longer recording; `None` unless only part of a recording was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// Accounts of the entire machine, summed over all CPUs. They are grouped by class, largest
    /// first within each class.
    pub accounts: Vec<Account>,
    /// Accounts by CPU.
    pub cpus: Vec<CpuAccounts>,
    /// Result of checking whether the accounts add up.
    pub balance: Balance,
    /// Waits for a CPU and their causes; `None` if they were not requested or are unknown.
    #[serde(default)]
    pub waits: Option<crate::waits::WaitStatement>,
    /// Delays of received packets; `None` unless packets woke a thread or the kernel counted
    /// dropped packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<crate::packet_path::PacketPaths>,
    /// Groups that the programs belong to, largest CPU time first. Empty if no group is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupAccount>,
    /// Short-lived processes by program and by the process that started them, largest number first.
    /// A process is short-lived if it exited less than a second after it was created. Empty if the
    /// recording does not show who created which process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_lived: Vec<StartedProcesses>,
    /// Programs, kernel threads and softirqs that were sampled, largest number of samples first. A
    /// sample is taken while a thread waits for the CPU, and while the watched program runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<SampledSource>,
    /// CPU time by sampled code; `None` if no profile was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Programs that were throttled even though they were runnable, longest throttled time first.
    #[serde(default)]
    pub throttled: Vec<ThrottledProgram>,
    /// Gaps that the probes measured; `None` if no probe ran.
    pub gaps: Option<GapStatement>,
    /// Periodic sources; `None` if they were not searched for.
    #[serde(default)]
    pub beats: Option<crate::beats::BeatStatement>,
    /// Completeness of the observation: its limitations and losses.
    pub coverage: Coverage,
    /// Checks of the clock that the probes read.
    pub clock: Option<ClockReport>,
    /// Probes.
    pub probes: Vec<ProbeReport>,
    /// Soakers.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// Cost of the observation itself.
    pub cost: ToolCost,
    /// The audited command.
    pub command: Option<CommandReport>,
    /// The analysed program.
    #[serde(default)]
    pub victim: Option<VictimStatement>,
    /// Pressure stall information of the entire machine, by resource.
    #[serde(default)]
    pub pressure: BTreeMap<String, Pressure>,
    /// Time stolen from all CPUs during the recording, according to the hypervisor's steal clock.
    /// Any account can contain some of it. `None` if the machine has no such clock, or if it is a
    /// guest whose clock never advanced.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// Stolen time that late timer interrupts prove; `None` if it could not be determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_timers: Option<crate::late_timers::LateTimers>,
    /// Samples of how many threads were running or waiting for a CPU on the entire machine.
    #[serde(default)]
    pub run_queue: Option<RunQueue>,
    /// Comparison of the accounts with the kernel's own accounting.
    #[serde(default)]
    pub accounting: Option<crate::accounting::AccountingStatement>,
    /// Number and cost of the timer ticks; `None` if they could not be determined.
    #[serde(default)]
    pub tick: Option<crate::tick::TickBill>,
    /// Virtual machines that ran on this machine; `None` if none was seen, or if KVM was not
    /// traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<crate::guests::GuestStatement>,
    /// Settings that are configured but not in effect, most severe first.
    #[serde(default)]
    pub findings: Vec<crate::finding::Finding>,
    /// Recommended actions, largest cost first.
    #[serde(default)]
    pub advice: Vec<crate::advice::Advice>,
}

/// Short-lived processes of one program, all started by the same process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartedProcesses {
    /// Name of the program.
    pub name: String,
    /// Number of processes.
    pub count: u64,
    /// CPU time of the processes.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Name of the program that started them. If that was itself a short-lived process, such as a
    /// subshell, this is the program that started it.
    pub started_by: String,
    /// Process id of the program that started them.
    pub started_by_pid: i32,
}

/// An account: the CPU time spent on one activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Class.
    pub class: Class,
    /// Name of the activity, as users know it.
    pub name: String,
    /// Process id, if the account is a program.
    pub pid: Option<i32>,
    /// Whether the time comes from the kernel's counters, which many kernels update only at the
    /// tick.
    pub sampled: bool,
    /// Total time in this account, summed over all CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number and lengths of the intervals that make up the time.
    #[serde(flatten)]
    pub intervals: Intervals,
    /// The longest of these intervals; `None` if the recording has no row for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
    /// Parts of the account (functions, work items or threads), largest first. They add up to at
    /// most `time`.
    pub parts: Vec<Part>,
}

/// CPU time of the programs in one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupAccount {
    /// Name of the group, as users know it.
    pub name: String,
    /// The group.
    pub group: crate::group::Group,
    /// Ids of the processes that ran.
    pub pids: Vec<i32>,
    /// CPU time of these processes.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals; 0 if the source reports only their total time.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
    /// Work items that threads in the group queued and kernel threads executed, largest CPU time
    /// first. This time is not part of `time`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served_by: Vec<GroupWork>,
    /// Kernel threads whose wake-ups came from threads in the group at least half of the time, most
    /// often woken first. They do work for the group, such as its I/O, with their own weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken: Vec<GroupWakeUps>,
}

/// Wake-ups of a kernel thread by a group's threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupWakeUps {
    /// Name of the kernel thread.
    pub thread: String,
    /// Number of times threads in the group woke it.
    pub count: u64,
    /// Total number of times it was woken.
    pub count_by_all: u64,
}

/// Work items with the same function. Threads in a group queued some of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupWork {
    /// Kernel function that the work items call.
    pub function: String,
    /// Number of times threads in the group queued this kind of work item.
    pub queued: u64,
    /// Number of times any thread or interrupt queued one.
    pub queued_by_all: u64,
    /// CPU time of all these work items, no matter who queued them.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl GroupWork {
    /// Returns the share of the work items queued by threads in the group, 0 to 1.
    pub fn share(&self) -> f64 {
        self.queued as f64 / self.queued_by_all.max(1) as f64
    }
}

/// A part of an account or of another total.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Name of the part: a timer function, the function of a work item, a page fault or a thread.
    pub name: String,
    /// Time of the part.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Longest interval.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// The accounts of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuAccounts {
    /// CPU.
    pub cpu: Cpu,
    /// Elapsed time on this CPU, which the times of all classes must add up to.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Time of each class, without classes that no time was spent in.
    pub classes: Vec<ClassTime>,
}

/// Time of one class of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassTime {
    /// Class.
    pub class: Class,
    /// Time of all accounts in the class.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl CpuAccounts {
    /// Returns the time of `class` on this CPU.
    pub fn time_of(&self, class: Class) -> Nanos {
        self.time_where(|other| other == class)
    }

    /// Returns the total time on this CPU of all classes that satisfy `belongs`.
    pub fn time_where(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let parts = self.classes.iter().filter(|part| belongs(part.class));
        parts.map(|part| part.time).sum()
    }
}

/// Result of checking whether the accounts balance, that is, add up to the elapsed time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Elapsed time, summed over all CPUs.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Sum of the times of all accounts.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// CPUs whose accounts do not add up to the elapsed time, each with the difference.
    #[serde(rename = "imbalances_ns", alias = "off_ns")]
    pub imbalances: Vec<(Cpu, Nanos)>,
}

impl Statement {
    /// Returns the total time of all accounts whose class satisfies `belongs`.
    pub fn time_of(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let accounts = self.accounts.iter();
        let accounts = accounts.filter(|account| belongs(account.class));
        accounts.map(|account| account.time).sum()
    }

    /// Returns whether every nanosecond of each CPU, and of each thread in the watched program, is
    /// in exactly one account.
    pub fn balances(&self) -> bool {
        let victim = self.victim.as_ref();
        let threads = victim.and_then(|victim| victim.threads.as_ref());
        self.balance.balances() && threads.is_none_or(ThreadTimes::balances)
    }
}

impl Balance {
    /// Returns whether every nanosecond of every CPU is in exactly one account.
    pub fn balances(&self) -> bool {
        self.imbalances.is_empty() && self.elapsed == self.accounted
    }
}

/// A program that was throttled even though it was runnable. The throttled time is not CPU time, so
/// it belongs to no account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottledProgram {
    /// Program name.
    pub name: String,
    /// Process id.
    pub pid: Option<i32>,
    /// Why the program's threads were off the CPU.
    #[serde(alias = "why")]
    pub reason: OffCpuReason,
    /// Time that the program's threads were throttled, summed over the threads. Each interval lasts
    /// until the thread runs again, so it includes the run-queue wait after the throttling.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number and lengths of the throttled intervals.
    #[serde(flatten)]
    pub intervals: Intervals,
}

/// The gaps that the probes measured, and what happened in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapStatement {
    /// Kind of probe.
    pub probe: ProbeKind,
    /// Length of the probes' measurements, summed over all CPUs.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Gaps of at least [`GapStatement::FLOOR`] in which no program ran.
    pub long: GapParts,
    /// Shorter gaps in which no program ran, down to the probe's threshold.
    pub short: GapParts,
    /// Gaps in which a program or ticktax ran. The spin probe yielded the CPU to it on purpose, so
    /// these gaps are not losses.
    #[serde(default)]
    pub yielded: GapParts,
    /// The longest gaps, with their contents, longest first.
    #[serde(alias = "worst")]
    pub longest: Vec<WorstGap>,
    /// Gaps grouped by their contents, largest total time first.
    pub causes: Vec<GapCause>,
    /// For each CPU, how strongly its empty gaps prove that the kernel ran nothing.
    #[serde(default)]
    pub proofs: Vec<crate::witness::CpuProof>,
    /// For each activity, an upper bound on the time of kernel entry and exit around it, and the
    /// gaps that exceed this bound.
    #[serde(default)]
    pub entry_exit: Vec<EntryExitBound>,
}

impl GapStatement {
    /// Minimum length of a long gap.
    pub const FLOOR: Nanos = Nanos(1_000);
}

/// Upper bound on the time of kernel entry and exit around one kind of activity, and the gaps that
/// exceed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryExitBound {
    /// Account of the first activity in the gaps.
    #[serde(alias = "around")]
    pub account: String,
    /// Number of gaps.
    pub count: u64,
    /// Median time of entry and exit.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// Upper bound: the maximum time attributed to entry and exit.
    #[serde(rename = "bound_ns", alias = "most_ns")]
    pub bound: Nanos,
    /// Number of gaps that exceed the bound. In each of them, only the median time is attributed to
    /// entry and exit.
    pub beyond_count: u64,
    /// Remaining time in the gaps that exceed the bound. It counts as time of the hypervisor or
    /// firmware, or as unexplained.
    #[serde(rename = "beyond_ns")]
    pub beyond: Nanos,
}

/// A set of gaps, whose total time is divided into four parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapParts {
    /// Number and lengths of the gaps.
    #[serde(flatten)]
    pub gaps: Intervals,
    /// Total time of the gaps, which is the sum of the four parts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time that an activity with a known source ran.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Time of kernel entry and exit around these activities.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Nanos,
    /// Time during which the trace proves that the kernel ran nothing.
    #[serde(rename = "hypervisor_or_firmware_ns", alias = "outside_ns")]
    pub hypervisor_or_firmware: Nanos,
    /// Remaining time, which is unexplained.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
}

impl GapParts {
    /// Returns the share of the time explained by activities, by entry and exit, or by the proof
    /// that the kernel ran nothing.
    pub fn coverage(&self) -> f64 {
        if self.time == Nanos::ZERO {
            1.0
        } else {
            1.0 - self.unexplained.share_of(self.time)
        }
    }
}

/// One long gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstGap {
    /// CPU on which the gap occurred.
    pub cpu: Cpu,
    /// Start of the gap, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length of the gap.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Contents of the gap, largest time first.
    pub parts: Vec<Part>,
}

impl WorstGap {
    /// Returns the interval of the gap in the recording.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.cpu,
        }
    }
}

/// Gaps with the same contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapCause {
    /// Names of the contents, joined by ` + `. For empty gaps, this is `hypervisor or firmware` or
    /// `unexplained`.
    pub name: String,
    /// Number of gaps.
    pub count: u64,
    /// Total time of the gaps.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time that an activity with a known source ran.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Median length of the gaps.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}
