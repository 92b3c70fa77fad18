//! The statement: what the books of a recording say, ready to be printed.
//!
//! A statement holds every number that a renderer shows. A renderer computes nothing but shares
//! and units, so that the terminal, JSON and whatever comes next cannot disagree.

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

/// What a recording's books say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Which world it is about.
    pub world: World,
    /// How much could be seen.
    pub level: Level,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Which part of a longer recording it is of, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// Every account of the machine, all CPUs together, largest first within its class.
    pub accounts: Vec<Account>,
    /// The books of each CPU.
    pub cpus: Vec<CpuBooks>,
    /// Whether it all adds up.
    pub balance: Balance,
    /// Who waited for a CPU behind whom, where it was asked for and is known.
    #[serde(default)]
    pub waits: Option<crate::waits::WaitStatement>,
    /// What delayed packets, where any woke a thread or the kernel counted some that it could not take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<crate::packet_path::PacketPaths>,
    /// Programs that wanted to run and were not allowed to, longest wait first.
    #[serde(default)]
    pub throttled: Vec<ThrottledProgram>,
    /// What the probes saw, where they ran.
    pub gaps: Option<GapStatement>,
    /// What repeats, where it was looked for.
    #[serde(default)]
    pub beats: Option<crate::beats::BeatStatement>,
    /// What could not be seen.
    pub coverage: Coverage,
    /// How the probes' clock was checked.
    pub clock: Option<ClockReport>,
    /// The probes.
    pub probes: Vec<ProbeReport>,
    /// The soakers.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// What observing cost.
    pub cost: ToolCost,
    /// The audited command.
    pub command: Option<CommandReport>,
    /// What happened to the program whose time was asked for.
    #[serde(default)]
    pub victim: Option<VictimStatement>,
    /// Time lost to the scarcity of a resource, on the whole machine, by the kernel's own clocks.
    #[serde(default)]
    pub pressure: BTreeMap<String, Pressure>,
    /// What the hypervisor's clock says that it took from all CPUs meanwhile, whatever ran there: it may be in any
    /// account. `None` where there is no such clock, or, in a guest, one that has never run.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// How many threads ran or waited for a CPU, on the whole machine.
    #[serde(default)]
    pub run_queue: Option<RunQueue>,
    /// What the kernel's own accounting says, beside what was traced.
    #[serde(default)]
    pub accounting: Option<crate::accounting::AccountingStatement>,
    /// What the timer's tick cost, where it could be told.
    #[serde(default)]
    pub tick: Option<crate::tick::TickBill>,
    /// What is configured and not in effect, the worst first.
    #[serde(default)]
    pub findings: Vec<crate::finding::Finding>,
    /// What to do, the costliest first.
    #[serde(default)]
    pub advice: Vec<crate::advice::Advice>,
}

/// One account: whose time, and how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Its class.
    pub class: Class,
    /// The name that a person would use.
    pub name: String,
    /// Process id, where the account is a program's.
    pub pid: Option<i32>,
    /// Whether its time is from the kernel's counters, which many kernels update only at the tick.
    pub sampled: bool,
    /// Time, over all CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The intervals that it came in.
    #[serde(flatten)]
    pub intervals: Intervals,
    /// The longest of them; `None` where it has no row of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
    /// Parts of it by function, work item or thread, largest first; they sum to at most `time`.
    pub parts: Vec<Part>,
}

/// A part of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// A timer's or work item's function, a page fault, a thread.
    pub name: String,
    /// Time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How many intervals.
    pub count: u64,
    /// The longest interval.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}

/// The books of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuBooks {
    /// Which CPU.
    pub cpu: Cpu,
    /// The time to account for.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// What was accounted for, by class; a class without time is left out.
    pub classes: Vec<ClassTime>,
}

/// The time of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassTime {
    /// Which class.
    pub class: Class,
    /// How much.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl CpuBooks {
    /// The time of `class`.
    pub fn of(&self, class: Class) -> Nanos {
        self.of_all(|other| other == class)
    }

    /// The time of the classes that `belongs` says yes to.
    pub fn of_all(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let parts = self.classes.iter().filter(|part| belongs(part.class));
        parts.map(|part| part.time).sum()
    }
}

/// Whether the books balance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// The elapsed time of all CPUs together.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// The sum of all accounts, computed from them.
    #[serde(rename = "accounted_ns")]
    pub accounted: Nanos,
    /// CPUs whose own sum differs from their elapsed time, and by how much.
    #[serde(rename = "off_ns")]
    pub off: Vec<(Cpu, Nanos)>,
}

impl Statement {
    /// The time of all accounts whose class `belongs` says yes to.
    pub fn time_of(&self, belongs: impl Fn(Class) -> bool) -> Nanos {
        let accounts = self.accounts.iter();
        let accounts = accounts.filter(|account| belongs(account.class));
        accounts.map(|account| account.time).sum()
    }

    /// Whether every nanosecond is where it belongs: the machine's, and the victim's.
    pub fn balances(&self) -> bool {
        let victim = self.victim.as_ref();
        let threads = victim.and_then(|victim| victim.threads.as_ref());
        self.balance.balances() && threads.is_none_or(ThreadTimes::balances)
    }
}

impl Balance {
    /// Whether every nanosecond of every CPU is in exactly one account.
    pub fn balances(&self) -> bool {
        self.off.is_empty() && self.elapsed == self.accounted
    }
}

/// Time for which a program wanted to run and was not allowed to. It is in no account, because no
/// CPU spent it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottledProgram {
    /// The program.
    pub name: String,
    /// Its process id.
    pub pid: Option<i32>,
    /// Why.
    pub why: OffCpuReason,
    /// For how long, the times of its threads added up: each until it ran again, so with its wait for a CPU
    /// once it was allowed to.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How many times, and for how long each.
    #[serde(flatten)]
    pub intervals: Intervals,
}

/// What the probes' gaps were made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapStatement {
    /// Which probe saw them.
    pub probe: ProbeKind,
    /// The time over which the probes measured, all CPUs together.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Gaps of at least [`GapStatement::FLOOR`] in which no program ran.
    pub long: GapParts,
    /// The shorter ones, down to the probe's threshold.
    pub short: GapParts,
    /// Gaps of a spinning probe in which a program ran, or ticktax itself: the probe gave the CPU
    /// away, as it should, and these are no losses.
    #[serde(default)]
    pub yielded: GapParts,
    /// The longest gaps, longest first, with what was in them.
    pub worst: Vec<WorstGap>,
    /// Gaps by what they held, the costliest first.
    pub causes: Vec<GapCause>,
    /// What an empty gap proves, CPU by CPU.
    #[serde(default)]
    pub proofs: Vec<crate::witness::CpuProof>,
    /// What entry and exit take, by what they are around, and what was too long for that.
    #[serde(default)]
    pub entry_exit: Vec<EntryExitBound>,
}

impl GapStatement {
    /// Gaps from this length on count for coverage.
    pub const FLOOR: Nanos = Nanos(1_000);
}

/// How long getting into and out of the kernel takes around one thing, and what was longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryExitBound {
    /// What it is around: the account of what came first in the gaps.
    pub around: String,
    /// How many gaps.
    pub count: u64,
    /// The median.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// The most that counts as entry and exit.
    #[serde(rename = "bound_ns", alias = "most_ns")]
    pub bound: Nanos,
    /// How many took longer. Of these the median is entry and exit, the rest is not.
    pub beyond_count: u64,
    /// That rest: outside, or unexplained.
    #[serde(rename = "beyond_ns")]
    pub beyond: Nanos,
}

/// Gaps, and the four parts of their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapParts {
    /// The gaps themselves.
    #[serde(flatten)]
    pub gaps: Intervals,
    /// Their time. It is the sum of the four parts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// In spans that have a name.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Getting into and out of the kernel around those.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Nanos,
    /// Nothing ran in the kernel, and the trace proves it.
    #[serde(rename = "outside_ns")]
    pub outside: Nanos,
    /// None of these.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
}

impl GapParts {
    /// The share of the time that is explained: by name, entry and exit, or proof.
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
    /// Where.
    pub cpu: Cpu,
    /// When, since the recording began.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// What was in it, costliest first.
    pub parts: Vec<Part>,
}

impl WorstGap {
    /// Where to look for it.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.cpu,
        }
    }
}

/// Gaps that had the same things in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapCause {
    /// What was in them, joined by ` + `; `outside` or `unexplained` where nothing was.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Their time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The part of it in spans that have a name.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// The median gap.
    #[serde(rename = "median_ns")]
    pub median: Option<Nanos>,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Option<Nanos>,
}
