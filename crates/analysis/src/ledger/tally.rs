//! Sums of time with what is needed to describe them: how many, how long.

use ticktax_model::recording::Sum;
use ticktax_model::statement::{Account, Class, Part};
use ticktax_model::{Histogram, Intervals, Nanos};

use crate::pace::tellable;

/// Time, the number of intervals it came in, and the longest of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) time: Nanos,
    pub(crate) count: u64,
    pub(crate) longest: Nanos,
}

impl Tally {
    /// Adds one interval of this length on the wall, of which `time` counts.
    pub(crate) fn add(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.longest = self.longest.max(length);
    }

    /// Adds all that `other` has.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.time += other.time;
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    /// The longest interval, where there was one.
    pub(crate) fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.longest)
    }

    /// Whether there is anything to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.time == Nanos::ZERO
    }

    /// This tally as a part of an account.
    pub(crate) fn into_part(self, name: String) -> Part {
        Part {
            name,
            time: self.time,
            count: self.count,
            max: self.max(),
        }
    }
}

/// A tally with the distribution of its intervals' lengths.
#[derive(Clone, Debug, Default)]
pub(crate) struct LengthTally {
    pub(crate) tally: Tally,
    pub(crate) histogram: Histogram,
}

impl LengthTally {
    /// Adds one interval of this length on the wall, of which `time` counts.
    pub(crate) fn add(&mut self, time: Nanos, length: Nanos) {
        self.tally.add(time, length);
        self.histogram.record(length);
    }

    /// Adds what a recording summed over a window.
    pub(crate) fn add_sum(&mut self, sum: &Sum) {
        let tally = Tally {
            time: sum.span.self_time,
            count: sum.count,
            longest: sum.max,
        };
        self.tally.merge(&tally);
        self.histogram.merge(&sum.histogram);
    }

    /// Adds all that `other` has.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.histogram.merge(&other.histogram);
    }

    /// The length below which the share `q` (0 to 1) of the intervals lies. The middle of a
    /// histogram's bucket can lie beyond the longest interval in it; the answer never does.
    pub(crate) fn quantile(&self, q: f64) -> Option<Nanos> {
        Some(self.histogram.quantile(q)?.min(self.tally.longest))
    }

    /// The length that 99 of 100 stay below; `None` of too few to tell ([`tellable`]).
    pub(crate) fn p99(&self) -> Option<Nanos> {
        let known = tellable(0.99, self.tally.count);
        self.quantile(0.99).filter(|_| known)
    }

    /// How many, and how long, as a statement tells it.
    pub(crate) fn intervals(&self) -> Intervals {
        Intervals {
            count: self.tally.count,
            median: self.quantile(0.5),
            p99: self.p99(),
            max: self.tally.max(),
        }
    }

    /// An account with these intervals, and with `time` in it.
    pub(crate) fn to_account(&self, class: Class, name: &str, time: Nanos) -> Account {
        Account {
            class,
            name: name.to_owned(),
            pid: None,
            sampled: false,
            time,
            intervals: self.intervals(),
            longest: None,
            parts: Vec::new(),
        }
    }
}

/// Sorts parts as a statement lists them: the largest first, equals by name.
pub(crate) fn sort_parts(parts: &mut [Part]) {
    parts.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
}
