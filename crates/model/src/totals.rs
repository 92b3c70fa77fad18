//! An agent's totals since it started: CPU time by account, lengths of intervals, and the agent's
//! own cost. The numbers never decrease unless noted otherwise.

mod delays;
mod incidents;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::machine::Pressure;
use crate::recording::Loss;
use crate::statement::Class;
use crate::{Cpu, Histogram, Nanos};

pub use delays::{DelayTotals, Delays, GroupTotals, NamedDelays};
pub use incidents::IncidentTotals;

/// Key of an account on one CPU. Programs with the same name share one account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// Class of the account.
    pub class: Class,
    /// Name of the program or interrupt. Kernel threads are listed under their name without the
    /// number in it.
    pub name: Arc<str>,
    /// CPU.
    pub cpu: Cpu,
}

/// Total self time of several intervals, and the distribution of their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Sum of the intervals' self times, which exclude interruptions.
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Wall-clock lengths of the intervals, including interruptions.
    pub histogram: Histogram,
}

impl IntervalSum {
    /// Adds one interval with the wall-clock length `length` and the self time `time`.
    pub fn record(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.histogram.record(length);
    }

    /// Adds `count` intervals with a total self time of `time` and the lengths in `histogram`.
    pub fn add(&mut self, time: Nanos, count: u64, histogram: &Histogram) {
        self.time += time;
        self.count += count;
        self.histogram.merge(histogram);
    }

    /// Adds the intervals in `other`.
    pub fn merge(&mut self, other: &Self) {
        self.add(other.time, other.count, &other.histogram);
    }
}

/// Sums of intervals, by account.
pub type AccountSums = BTreeMap<AccountKey, IntervalSum>;

/// All totals that an agent keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Version of ticktax.
    pub tool_version: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Tick frequency set when the kernel was built, in Hz.
    pub hz_configured: Option<u32>,
    /// Time when the agent started, in ms since 1970 by the wall clock.
    pub began_unix_ms: i64,
    /// Time of the last row included, in ms since 1970 by the wall clock.
    pub updated_unix_ms: i64,
    /// CPU time by account.
    pub accounts: AccountSums,
    /// Time that threads were throttled, by program. Throttled threads are runnable but do not run,
    /// so this is not CPU time.
    pub throttled: BTreeMap<Arc<str>, IntervalSum>,
    /// Waiting times by program and by group, and counters of groups.
    pub delays: DelayTotals,
    /// CPU time of the tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
    /// Stolen time reported by the hypervisor, by CPU number. The time in `accounts` includes it.
    pub steal: BTreeMap<u32, Nanos>,
    /// Pressure stall information of the entire machine, by resource.
    pub pressure: BTreeMap<String, Pressure>,
    /// Events that were lost, by CPU. Their time is unexplained.
    pub lost: Vec<Loss>,
    /// Number of limitations that apply on this machine. It can decrease.
    pub limitations: usize,
    /// Resources that the agent itself uses.
    pub own: OwnCost,
    /// Numbers of facts files and rows; `None` if the agent does not write facts.
    pub facts: Option<FactsCount>,
    /// Numbers of incidents; `None` if the agent runs without a flight recorder.
    pub incidents: Option<IncidentTotals>,
}

/// Resources that an agent itself uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of all threads of the agent.
    pub cpu: Nanos,
    /// Peak memory use, in bytes.
    pub memory_bytes: u64,
    /// Number of tracepoint events that the agent received.
    pub events: u64,
    /// Number of intervals counted under the name `others` because the table of sources was full.
    pub folded: u64,
}

/// Numbers that describe how an agent writes facts files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsCount {
    /// Number of rows written to files.
    pub rows: u64,
    /// Number of files written.
    pub files: u64,
    /// Number of failed attempts to write a file. Its rows stay pending and are retried.
    pub errors: u64,
    /// Number of rows dropped because files could not be written for too long.
    pub dropped: u64,
    /// Total size of all files now on disk, in bytes. It can decrease.
    pub bytes: u64,
}
