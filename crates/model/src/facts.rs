//! Facts: an agent's CPU accounts and other observations, as Parquet files that can be queried
//! across many machines.
//!
//! `docs/reference/data.md` describes the tables and their columns. Each file is sorted and written
//! in one go. This keeps files small, and a query for one name or one time can skip most of a file.

mod rows;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use crate::totals::{AccountSums, IntervalSum};
use crate::{Cpu, Nanos};

pub use rows::{BeatFact, Cell, HostFact, Row};
pub use table::{Column, ColumnKind, Table};

/// Length of a table's time windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowLength {
    /// One minute.
    Minute,
    /// Ten minutes, merged from one-minute windows.
    TenMinutes,
    /// One hour, merged from ten-minute windows.
    Hour,
}

impl WindowLength {
    /// All lengths, shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::TenMinutes, Self::Hour];

    /// The length as a duration.
    pub const fn length(self) -> Nanos {
        Nanos::from_secs(match self {
            Self::Minute => 60,
            Self::TenMinutes => 600,
            Self::Hour => 3_600,
        })
    }
}

impl fmt::Display for WindowLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Minute => "1m",
            Self::TenMinutes => "10m",
            Self::Hour => "1h",
        })
    }
}

/// A completed window.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Nominal length.
    pub kind: WindowLength,
    /// Wall-clock start time, in ms since 1970.
    pub begin_unix_ms: i64,
    /// Actual length, by the monotonic clock. An agent's first and last windows are shorter than
    /// nominal.
    pub length: Nanos,
    /// CPU time by account.
    pub accounts: AccountSums,
    /// CPU time of the tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
}
