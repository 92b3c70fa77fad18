//! An agent's totals since it started: CPU time by account, lengths of intervals, and the agent's
//! own cost. Numbers never decrease unless noted otherwise.

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
    /// Name of the program or interrupt. For a kernel thread, its name without the number.
    pub name: Arc<str>,
    /// CPU.
    pub cpu: Cpu,
}

/// Total self time of a set of intervals, and the distribution of their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Total self time, which excludes interruptions.
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Wall-clock lengths of the intervals, including interruptions.
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
    /// Tick frequency set when the kernel was built, in Hz.
    pub hz_configured: Option<u32>,
    /// Wall-clock time when the agent started, in ms since 1970.
    pub began_unix_ms: i64,
    /// Wall-clock time of the last row included, in ms since 1970.
    pub updated_unix_ms: i64,
    /// CPU time by account.
    pub accounts: AccountSums,
    /// Throttled time by program. It is not CPU time: throttled threads are runnable but do not
    /// run.
    pub throttled: BTreeMap<Arc<str>, IntervalSum>,
    /// CPU time of the tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
    /// Stolen time reported by the hypervisor, by CPU number. The accounts include it.
    pub steal: BTreeMap<u32, Nanos>,
    /// Pressure stall information of the entire machine, by resource.
    pub pressure: BTreeMap<String, Pressure>,
    /// Lost events, by CPU. Their time is unexplained.
    pub lost: Vec<Loss>,
    /// Number of limitations on this machine. It can decrease.
    pub limitations: usize,
    /// Resources used by the agent itself.
    pub own: OwnCost,
    /// Counts about facts files, if the agent writes them.
    pub facts: Option<FactsCount>,
    /// Counts of incidents, if a flight recorder runs as well.
    pub incidents: Option<IncidentTotals>,
}

/// Resources used by an agent itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of all threads of the agent.
    pub cpu: Nanos,
    /// Peak memory use, in bytes.
    pub memory_bytes: u64,
    /// Number of tracepoint hits.
    pub events: u64,
    /// Number of intervals that were counted as `others` because the table of sources was full.
    pub folded: u64,
}

/// Counts about facts files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsCount {
    /// Number of rows written to files.
    pub rows: u64,
    /// Number of files written.
    pub files: u64,
    /// Number of failed attempts to write.
    pub errors: u64,
    /// Number of rows dropped after they could not be written for too long.
    pub dropped: u64,
    /// Current size of all files on disk, in bytes. It can decrease.
    pub bytes: u64,
}
