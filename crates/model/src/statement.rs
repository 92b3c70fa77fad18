//! The statement: a recording's accounts, ready to be printed.
//!
//! A statement contains every number that a renderer shows. Renderers only compute shares and
//! units, so the terminal, JSON and other formats cannot disagree.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Pressure, RunQueue};
use crate::recording::{
    ClockReport, CommandReport, Coverage, Level, ProbeKind, ProbeReport, RecordingPart, SoakReport,
    ToolCost, World,
};
use crate::victim::{OffCpuReason, ThreadTimes, VictimStatement};
use crate::{Cpu, Intervals, Moment, Nanos};

mod class;

pub use class::{Class, Holder};

/// The accounts of a recording and everything derived from them.
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
    /// Position within a longer recording, if only part of one was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// The machine's accounts over all CPUs, largest first within each class.
    pub accounts: Vec<Account>,
    /// Accounts by CPU.
    pub cpus: Vec<CpuAccounts>,
    /// Result of checking that the accounts add up.
    pub balance: Balance,
    /// Run-queue waits and their causes, if they were requested and are known.
    #[serde(default)]
    pub waits: Option<crate::waits::WaitStatement>,
    /// Packet delays, if packets woke a thread or the kernel counted dropped packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<crate::packet_path::PacketPaths>,
    /// Programs that were throttled while runnable, longest wait first.
    #[serde(default)]
    pub throttled: Vec<ThrottledProgram>,
    /// Gaps measured by the probes, if any ran.
    pub gaps: Option<GapStatement>,
    /// Periodic sources, if they were searched for.
    #[serde(default)]
    pub beats: Option<crate::beats::BeatStatement>,
    /// Coverage and limitations of the observation.
    pub coverage: Coverage,
    /// Check of the probes' clock.
    pub clock: Option<ClockReport>,
    /// Probes.
    pub probes: Vec<ProbeReport>,
    /// Soakers.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// Cost of the observation.
    pub cost: ToolCost,
    /// The audited command.
    pub command: Option<CommandReport>,
    /// The analysed program.
    #[serde(default)]
    pub victim: Option<VictimStatement>,
    /// Pressure stall information of the entire machine, by resource.
    #[serde(default)]
    pub pressure: BTreeMap<String, Pressure>,
    /// Stolen time of all CPUs during the recording, according to the hypervisor's steal clock. Any
    /// account can contain it. `None` if there is no steal clock, or if it never advanced in a
    /// guest.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// Number of threads on the entire machine that ran or waited for a CPU.
    #[serde(default)]
    pub run_queue: Option<RunQueue>,
    /// Comparison with the kernel's own accounting.
    #[serde(default)]
    pub accounting: Option<crate::accounting::AccountingStatement>,
    /// Cost of the timer tick, if it could be determined.
    #[serde(default)]
    pub tick: Option<crate::tick::TickBill>,
    /// Settings that are configured but not in effect, most severe first.
    #[serde(default)]
    pub findings: Vec<crate::finding::Finding>,
    /// Recommended actions, largest cost first.
    #[serde(default)]
    pub advice: Vec<crate::advice::Advice>,
}

/// One account: the CPU time spent on one activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Class.
    pub class: Class,
    /// Name, as users know it.
    pub name: String,
    /// Process id, if the account is a program.
    pub pid: Option<i32>,
    /// Whether the time comes from the kernel's counters, which many kernels only update at the
    /// tick.
    pub sampled: bool,
    /// Total time over all CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Intervals that make up the time.
    #[serde(flatten)]
    pub intervals: Intervals,
    /// The longest interval; `None` if the recording has no row for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
    /// Breakdown by function, work item or thread, largest first. The parts add up to at most
    /// `time`.
    pub parts: Vec<Part>,
}

/// Part of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// A timer function, a work item's function, a page fault or a thread.
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
    /// Elapsed time. The classes must add up to it.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Time by class. Classes without time are omitted.
    pub classes: Vec<ClassTime>,
}

/// The time of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassTime {
    /// Class.
    pub class: Class,
    /// Time of the class.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl CpuAccounts {
    /// This CPU's time in `class`.
    pub fn of(&self, class: Class) -> Nanos {
        self.of_all(|other| other == class)
    }

    /// This CPU's time in all classes that satisfy `belongs`.
    pub fn of_all(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let parts = self.classes.iter().filter(|part| belongs(part.class));
        parts.map(|part| part.time).sum()
    }
}

/// Whether the accounts balance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Elapsed time, summed over all CPUs.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Sum of all accounts.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// CPUs whose accounts do not add up to their elapsed time, each with the difference.
    #[serde(rename = "imbalances_ns", alias = "off_ns")]
    pub imbalances: Vec<(Cpu, Nanos)>,
}

impl Statement {
    /// Total time of all accounts whose class satisfies `belongs`.
    pub fn time_of(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let accounts = self.accounts.iter();
        let accounts = accounts.filter(|account| belongs(account.class));
        accounts.map(|account| account.time).sum()
    }

    /// Whether every nanosecond of the machine, and of the watched program, is in exactly one
    /// account.
    pub fn balances(&self) -> bool {
        let victim = self.victim.as_ref();
        let threads = victim.and_then(|victim| victim.threads.as_ref());
        self.balance.balances() && threads.is_none_or(ThreadTimes::balances)
    }
}

impl Balance {
    /// Whether every nanosecond of every CPU is in exactly one account.
    pub fn balances(&self) -> bool {
        self.imbalances.is_empty() && self.elapsed == self.accounted
    }
}

/// Time in which a program was runnable but throttled. This time belongs to no account, because it
/// is not CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottledProgram {
    /// Program name.
    pub name: String,
    /// Process id.
    pub pid: Option<i32>,
    /// Why the program was off its CPU.
    #[serde(alias = "why")]
    pub reason: OffCpuReason,
    /// Total throttled time of the program's threads. Each interval lasts until the thread runs
    /// again, so it includes the run-queue wait that follows.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number and lengths of the throttled intervals.
    #[serde(flatten)]
    pub intervals: Intervals,
}

/// The probes' gaps and their contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapStatement {
    /// Kind of probe.
    pub probe: ProbeKind,
    /// Time that the probes measured, over all CPUs.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Gaps of at least [`GapStatement::FLOOR`] in which no program ran.
    pub long: GapParts,
    /// Shorter gaps, down to the probe's threshold.
    pub short: GapParts,
    /// Gaps in which a program or ticktax ran. The spin probe yielded the CPU on purpose, so these
    /// gaps are not losses.
    #[serde(default)]
    pub yielded: GapParts,
    /// The longest gaps and their contents, longest first.
    #[serde(alias = "worst")]
    pub longest: Vec<WorstGap>,
    /// Gaps grouped by contents, largest total time first.
    pub causes: Vec<GapCause>,
    /// How strong a proof each CPU's empty gaps give.
    #[serde(default)]
    pub proofs: Vec<crate::witness::CpuProof>,
    /// Bounds on the time of kernel entry and exit, by the activity between them, and the gaps that
    /// exceed these bounds.
    #[serde(default)]
    pub entry_exit: Vec<EntryExitBound>,
}

impl GapStatement {
    /// Shortest gap that counts towards coverage.
    pub const FLOOR: Nanos = Nanos(1_000);
}

/// Time of kernel entry and exit around one kind of activity, and the gaps that took longer.
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
    /// Maximum time attributed to entry and exit.
    #[serde(rename = "bound_ns", alias = "most_ns")]
    pub bound: Nanos,
    /// Number of gaps beyond the bound. In each of them, the median time is attributed to entry and
    /// exit.
    pub beyond_count: u64,
    /// Rest of the time in gaps beyond the bound. It counts as outside or unexplained.
    #[serde(rename = "beyond_ns")]
    pub beyond: Nanos,
}

/// A set of gaps, with their time divided into four parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapParts {
    /// Number and lengths of the gaps.
    #[serde(flatten)]
    pub gaps: Intervals,
    /// Total time, which is the sum of the four parts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time of spans with a known source.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Time of kernel entry and exit around these spans.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Nanos,
    /// Time in which the trace proves that the kernel ran nothing.
    #[serde(rename = "hypervisor_or_firmware_ns", alias = "outside_ns")]
    pub hypervisor_or_firmware: Nanos,
    /// Time without an explanation.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
}

impl GapParts {
    /// Share of the time that is explained by spans, by entry and exit, or by proof.
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
    /// Start, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length of the gap.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Contents of the gap, largest first.
    pub parts: Vec<Part>,
}

impl WorstGap {
    /// The gap's interval in the recording.
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
    /// Contents, joined by ` + `. If the gaps are empty, `hypervisor or firmware` or
    /// `unexplained`.
    pub name: String,
    /// Number of gaps.
    pub count: u64,
    /// Total time of the gaps.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time of spans with a known source.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Median length of the gaps.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}
