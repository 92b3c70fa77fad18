//! An agent's running totals since it started: CPU time by account, lengths of intervals, and the
//! agent's own cost. Numbers only grow unless stated otherwise.

mod incidents;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::machine::Pressure;
use crate::recording::Loss;
use crate::statement::Class;
use crate::{Cpu, Histogram, Nanos};

pub use incidents::IncidentTotals;

/// Identifies an account on one CPU. Programs with the same name share one account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// Class of the account.
    pub class: Class,
    /// Name of the program or interrupt, or of the kernel thread without its number.
    pub name: Arc<str>,
    /// CPU.
    pub cpu: Cpu,
}

/// Total time of a set of intervals, and the distribution of their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Self time: the intervals without their interruptions.
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Wall-clock lengths of the intervals, interruptions included.
    pub histogram: Histogram,
}

impl IntervalSum {
    /// Adds one interval with wall-clock length `length` and self time `time`.
    pub fn record(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.histogram.record(length);
    }

    /// Adds `count` intervals with total self time `time` and the lengths in `histogram`.
    pub fn add(&mut self, time: Nanos, count: u64, histogram: &Histogram) {
        self.time += time;
        self.count += count;
        self.histogram.merge(histogram);
    }

    /// Adds the intervals of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.add(other.time, other.count, &other.histogram);
    }
}

/// Accounts and their sums.
pub type AccountSums = BTreeMap<AccountKey, IntervalSum>;

/// All totals of an agent.
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
    /// Tick frequency that the kernel was built for, in Hz.
    pub hz_configured: Option<u32>,
    /// Start of the agent, in ms since 1970 by the wall clock.
    pub began_unix_ms: i64,
    /// Time of the last included row, in ms since 1970 by the wall clock.
    pub updated_unix_ms: i64,
    /// CPU time by account.
    pub accounts: AccountSums,
    /// Throttled time by program. Throttled threads are runnable but use no CPU time.
    pub throttled: BTreeMap<Arc<str>, IntervalSum>,
    /// Time of the tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
    /// Stolen time reported by the hypervisor, by CPU number. The accounts include it.
    pub steal: BTreeMap<u32, Nanos>,
    /// Pressure stall information of the whole machine, by resource.
    pub pressure: BTreeMap<String, Pressure>,
    /// Lost events, by CPU. Their time is unexplained.
    pub lost: Vec<Loss>,
    /// Number of limitations on this machine. It can fall.
    pub limitations: usize,
    /// Resources that the agent itself used.
    pub own: OwnCost,
    /// Counts of facts files, if the agent writes them.
    pub facts: Option<FactsCount>,
    /// Counts of incidents, if a flight recorder runs alongside.
    pub incidents: Option<IncidentTotals>,
}

/// Resources that an agent itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of all threads of the agent.
    pub cpu: Nanos,
    /// Peak memory, in bytes.
    pub memory_bytes: u64,
    /// Number of tracepoint hits.
    pub events: u64,
    /// Number of intervals that were counted under `others` because the table of sources was full.
    pub folded: u64,
}

/// Counts of facts files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsCount {
    /// Number of rows written to files.
    pub rows: u64,
    /// Number of files written.
    pub files: u64,
    /// Number of failed attempts to write.
    pub errors: u64,
    /// Number of rows dropped because they could not be written for too long.
    pub dropped: u64,
    /// Current size of all files on disk, in bytes. It can fall.
    pub bytes: u64,
}
