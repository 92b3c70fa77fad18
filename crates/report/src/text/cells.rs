//! Cells for the tables of accounts, gaps and waits: a time, a share, a rate and interval lengths.

use ticktax_model::{Intervals, Nanos};

use super::block::Columns;
use super::numbers::{percent, rate, rough_or_blank, time_or_blank};

/// Cells of a table line, to the right of the line's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    pub(super) time: String,
    pub(super) share: String,
    pub(super) rate: String,
    pub(super) median: String,
    pub(super) p99: String,
    pub(super) max: String,
}

impl Cells {
    pub(super) fn headings() -> Self {
        let word = str::to_owned;
        Self {
            time: word("time"),
            share: word("share"),
            rate: word("per s"),
            median: word("median"),
            p99: word("p99"),
            max: word("max"),
        }
    }

    /// Creates cells that contain only a time and its share of `whole`.
    pub(super) fn from_time(time: Nanos, whole: Nanos) -> Self {
        let share = percent(time.share_of(whole));
        Self {
            time: time.to_string(),
            share,
            ..Self::default()
        }
    }

    /// Returns the cells as columns of a table.
    pub(super) fn columns(&self) -> Columns {
        Columns::right([
            (8, &self.time),
            (7, &self.share),
            (6, &self.rate),
            (8, &self.median),
            (8, &self.p99),
            (8, &self.max),
        ])
    }
}

/// Returns how many lines to show by name: at most `most`, unless that would leave out just one
/// line, which is then shown as well.
pub(super) fn by_name(lines: usize, most: usize) -> usize {
    if lines <= most + 1 { lines } else { most }
}

/// Totals for the shares and rates in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Total time. Shares are fractions of it.
    pub(super) whole: Nanos,
    /// Wall-clock time. Rates are counts per second of it.
    pub(super) wall: Nanos,
}

impl Scale {
    /// Creates the cells for a time that consists of `intervals`.
    pub(super) fn cells(self, time: Nanos, intervals: &Intervals) -> Cells {
        Cells {
            rate: rate(intervals.count, self.wall),
            median: rough_or_blank(intervals.median),
            p99: rough_or_blank(intervals.p99),
            max: time_or_blank(intervals.max),
            ..Cells::from_time(time, self.whole)
        }
    }

    /// Creates cells that add up the lines that are not shown. `others` contains the time, count
    /// and longest interval of each such line.
    pub(super) fn others(self, others: impl Iterator<Item = (Nanos, u64, Option<Nanos>)>) -> Cells {
        let (mut time, mut count, mut max) = (Nanos::ZERO, 0, None);
        for (part, times, longest) in others {
            (time, count, max) = (time + part, count + times, max.max(longest));
        }
        Cells {
            rate: rate(count, self.wall),
            max: time_or_blank(max),
            ..Cells::from_time(time, self.whole)
        }
    }
}
