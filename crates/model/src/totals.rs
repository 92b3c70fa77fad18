//! What has been counted since an agent began: whose time it was on each CPU, how long intervals were, and
//! what counting cost. Every number here only grows, but for those that say otherwise.

mod incidents;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::machine::Pressure;
use crate::recording::Loss;
use crate::statement::Class;
use crate::{Cpu, Histogram, Nanos};

pub use incidents::IncidentTotals;

/// Whose time: an account on one CPU. Programs of one name are one account, whatever their processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// Its class.
    pub class: Class,
    /// The name that a person would use: a program's, an interrupt's, a kernel thread's without its number.
    pub name: Arc<str>,
    /// The CPU.
    pub cpu: Cpu,
}

/// Time, and the intervals that it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Own time: without what interrupted the intervals.
    pub time: Nanos,
    /// How many intervals.
    pub count: u64,
    /// The intervals by their length on the wall, interruptions included.
    pub histogram: Histogram,
}

impl IntervalSum {
    /// Adds one interval of this length, of which `time` counts.
    pub fn record(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.histogram.record(length);
    }

    /// Adds many.
    pub fn add(&mut self, time: Nanos, count: u64, histogram: &Histogram) {
        self.time += time;
        self.count += count;
        self.histogram.merge(histogram);
    }

    /// Adds all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.add(other.time, other.count, &other.histogram);
    }
}

/// Accounts with their sums.
pub type AccountSums = BTreeMap<AccountKey, IntervalSum>;

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Version of the program that counts.
    pub tool_version: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Frequency that the kernel's tick was built for, in Hz.
    pub hz_configured: Option<u32>,
    /// When it began, in ms since 1970 on the wall clock.
    pub began_unix_ms: i64,
    /// Until when rows are in it, in the same.
    pub updated_unix_ms: i64,
    /// Whose time it was.
    pub accounts: AccountSums,
    /// Programs that wanted to run and were not allowed to, by name. It is no CPU's time.
    pub throttled: BTreeMap<Arc<str>, IntervalSum>,
    /// The tick's own function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
    /// Time that the hypervisor took, by its own clock, by CPU number. It lies within the accounts.
    pub steal: BTreeMap<u32, Nanos>,
    /// Time lost to the scarcity of a resource, on the whole machine, by the kernel's clocks.
    pub pressure: BTreeMap<String, Pressure>,
    /// What was lost, by CPU; its time is unexplained.
    pub lost: Vec<Loss>,
    /// How many things cannot be seen on this machine. It is a number that may fall.
    pub limitations: usize,
    /// What counting cost.
    pub own: OwnCost,
    /// What became of facts files, where they are written.
    pub facts: Option<FactsCount>,
    /// What a flight recorder caught, where one runs beside the sums.
    pub incidents: Option<IncidentTotals>,
}

/// What an agent itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of all its threads.
    pub cpu: Nanos,
    /// The most memory that it held, in bytes.
    pub memory_bytes: u64,
    /// Tracepoint hits.
    pub events: u64,
    /// Intervals whose source there was no room for: they are in accounts called `others`.
    pub folded: u64,
}

/// What became of facts files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsCount {
    /// Rows that are in files.
    pub rows: u64,
    /// Files that were written.
    pub files: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// Rows that could not be written for so long that they were given up.
    pub dropped: u64,
    /// Bytes on the disk now. It is a number that may fall.
    pub bytes: u64,
}
