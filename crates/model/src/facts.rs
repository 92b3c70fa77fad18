//! Facts: an agent's CPU accounts and other observations. They are stored as Parquet files, which
//! can be queried across many machines.
//!
//! `docs/reference/data.md` describes the tables and their columns. Each file is written in one go,
//! with its rows sorted. This keeps files small, and lets a query for one name or one time skip
//! most of a file.

mod rows;
mod table;
mod waits;

use std::collections::BTreeMap;
use std::fmt;

use crate::totals::{AccountSums, IntervalSum};
use crate::{Cpu, Nanos};

pub use rows::{BeatFact, Cell, HostFact, Row};
pub use table::{Column, ColumnKind, Table};
pub use waits::WaitFacts;

/// Length of the time windows in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowLength {
    /// One minute.
    Minute,
    /// Ten minutes. These windows are merged from one-minute windows.
    TenMinutes,
    /// One hour. These windows are merged from ten-minute windows.
    Hour,
}

impl WindowLength {
    /// All lengths, shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::TenMinutes, Self::Hour];

    /// Returns the window length as a duration.
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
    /// Start of the window by the wall clock, in ms since 1970.
    pub begin_unix_ms: i64,
    /// Actual length of the window by the monotonic clock. An agent's first and last windows are
    /// shorter than the nominal length.
    pub length: Nanos,
    /// CPU time in the window, by account.
    pub accounts: AccountSums,
    /// CPU time of the tick's timer function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
}
