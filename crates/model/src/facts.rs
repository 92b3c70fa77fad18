//! Facts: whose time it was, and what else an agent learnt, as Parquet files that many machines can put side by side.
//!
//! `docs/data.md` describes the tables and their columns. A file is written at once and sorted, so it is small, and
//! queries that ask for one name or one time skip most of it.

mod rows;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use crate::totals::{AccountSums, IntervalSum};
use crate::{Cpu, Nanos};

pub use rows::{BeatFact, Cell, HostFact, Row};
pub use table::{Column, ColumnKind, Table};

/// How long the windows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowLength {
    /// A minute.
    Minute,
    /// Ten minutes: minutes, put together.
    TenMinutes,
    /// An hour: ten minutes, put together.
    Hour,
}

impl WindowLength {
    /// Every length, the shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::TenMinutes, Self::Hour];

    /// The length.
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

/// A window that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Which kind.
    pub kind: WindowLength,
    /// When it began, in ms since 1970 on the wall clock as it stood then.
    pub begin_unix_ms: i64,
    /// How long it was, by the clock that never jumps. The first and the last of an agent are shorter.
    pub length: Nanos,
    /// Whose time it was.
    pub accounts: AccountSums,
    /// The tick's own function, by CPU.
    pub ticks: BTreeMap<Cpu, IntervalSum>,
}
