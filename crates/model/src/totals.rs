//! Running totals of an agent since it started: CPU time by account, lengths of intervals, and the
//! cost of counting. Unless stated otherwise, every number only grows.

mod incidents;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::machine::Pressure;
use crate::recording::Loss;
use crate::statement::Class;
use crate::{Cpu, Histogram, Nanos};

pub use incidents::IncidentTotals;

/// An account on one CPU. Programs with the same name share one account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// Class of the account.
    pub class: Class,
    /// Readable name: of a program, an interrupt, or a kernel thread without its number.
    pub name: Arc<str>,
    /// CPU.
    pub cpu: Cpu,
}

/// Total time of a set of intervals, and the distribution of their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Own time: the intervals without their interruptions.
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Wall-clock lengths of the intervals, interruptions included.
    pub histogram: Histogram,
}

impl IntervalSum {
    /// Adds one interval of wall-clock length `length` and own time `time`.
    pub fn record(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.histogram.record(length);
    }

    /// Adds several intervals.
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
    /// Frequency that the kernel's tick was built for, in Hz.
    pub hz_configured: Option<u32>,
    /// Start, in ms since 1970 by the wall clock.
    pub began_unix_ms: i64,
    /// Time up to the last included row, in ms since 1970 by the wall clock.
    pub updated_unix_ms: i64,
    /// CPU time by account.
    pub accounts: AccountSums,
    /// Throttled time by program: runnable, but held back by a quota. It is not CPU time.
    pub throttled: BTreeMap<Arc<str>, IntervalSum>,
    /// The tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
    /// Stolen time reported by the hypervisor, by CPU number. It is contained in the accounts.
    pub steal: BTreeMap<u32, Nanos>,
    /// Pressure stall information of the whole machine, by resource.
    pub pressure: BTreeMap<String, Pressure>,
    /// Lost events, by CPU. Their time is unexplained.
    pub lost: Vec<Loss>,
    /// Number of limitations on this machine. It can fall.
    pub limitations: usize,
    /// Cost of counting.
    pub own: OwnCost,
    /// Facts files, if they are being written.
    pub facts: Option<FactsCount>,
    /// Incidents, if a flight recorder runs along with the sums.
    pub incidents: Option<IncidentTotals>,
}

/// Resources that an agent itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of all its threads.
    pub cpu: Nanos,
    /// Peak memory, in bytes.
    pub memory_bytes: u64,
    /// Tracepoint hits.
    pub events: u64,
    /// Intervals that were counted in an account called `others` because the table of sources was
    /// full.
    pub folded: u64,
}

/// Counts of facts files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsCount {
    /// Rows written to files.
    pub rows: u64,
    /// Files written.
    pub files: u64,
    /// Failed attempts to write.
    pub errors: u64,
    /// Rows dropped because they could not be written for too long.
    pub dropped: u64,
    /// Current size on disk, in bytes. It can fall.
    pub bytes: u64,
}
