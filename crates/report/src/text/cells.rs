//! The cells of the tables of accounts, gaps and waits: time, share, rate and lengths.

use ticktax_model::{Intervals, Nanos};

use super::block::Columns;
use super::numbers::{percent, rate, rough_or_blank, time_or_blank};

/// The cells of a table's line, to the right of its name.
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
    /// The headings of the columns.
    pub(super) fn headings() -> Self {
        let word = str::to_owned;
        Self {
            time: word("time"),
            share: word("share"),
            rate: word("per s"),
            median: word("median"),
            p99: word("p99"),
            max: word("longest"),
        }
    }

    /// The cells of a time that has only a share.
    pub(super) fn of_time(time: Nanos, whole: Nanos) -> Self {
        let share = percent(time.share_of(whole));
        Self {
            time: time.to_string(),
            share,
            ..Self::default()
        }
    }

    /// Those of the line, side by side.
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

/// How many of so many lines are shown by name, where `most` may be: one alone is never folded away.
pub(super) fn by_name(lines: usize, most: usize) -> usize {
    if lines <= most + 1 { lines } else { most }
}

/// What the lines of a table are set against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// What shares are of.
    pub(super) whole: Nanos,
    /// What rates are by.
    pub(super) wall: Nanos,
}

impl Scale {
    /// The cells of a time that came in `intervals`.
    pub(super) fn cells(self, time: Nanos, intervals: &Intervals) -> Cells {
        Cells {
            rate: rate(intervals.count, self.wall),
            median: rough_or_blank(intervals.median),
            p99: rough_or_blank(intervals.p99),
            max: time_or_blank(intervals.max),
            ..Cells::of_time(time, self.whole)
        }
    }

    /// The cells of what has no line of its own: of each its time, its count and its longest.
    pub(super) fn others(self, others: impl Iterator<Item = (Nanos, u64, Option<Nanos>)>) -> Cells {
        let (mut time, mut count, mut max) = (Nanos::ZERO, 0, None);
        for (of, times, longest) in others {
            (time, count, max) = (time + of, count + times, max.max(longest));
        }
        Cells {
            rate: rate(count, self.wall),
            max: time_or_blank(max),
            ..Cells::of_time(time, self.whole)
        }
    }
}
