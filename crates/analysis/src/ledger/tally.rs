//! Total times, with the number and lengths of the intervals that make them up.

use ticktax_model::recording::Sum;
use ticktax_model::statement::{Account, Class, Part};
use ticktax_model::{Histogram, Intervals, Nanos};

use ticktax_model::tellable;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) time: Nanos,
    pub(crate) count: u64,
    pub(crate) longest: Nanos,
}

impl Tally {
    /// Adds an interval that lasted `length`, but only adds `time` to the total.
    pub(crate) fn add(&mut self, time: Nanos, length: Nanos) {
        self.time += time;
        self.count += 1;
        self.longest = self.longest.max(length);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.time += other.time;
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    pub(crate) fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.longest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.time == Nanos::ZERO
    }

    pub(crate) fn into_part(self, name: String) -> Part {
        Part {
            name,
            time: self.time,
            count: self.count,
            max: self.max(),
        }
    }
}

/// A tally, plus the distribution of its intervals' lengths.
#[derive(Clone, Debug, Default)]
pub(crate) struct LengthTally {
    pub(crate) tally: Tally,
    pub(crate) histogram: Histogram,
}

impl LengthTally {
    pub(crate) fn add(&mut self, time: Nanos, length: Nanos) {
        self.tally.add(time, length);
        self.histogram.record(length);
    }

    pub(crate) fn add_sum(&mut self, sum: &Sum) {
        let tally = Tally {
            time: sum.span.self_time,
            count: sum.count,
            longest: sum.max,
        };
        self.tally.merge(&tally);
        self.histogram.merge(&sum.histogram);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.histogram.merge(&other.histogram);
    }

    /// Returns the `q`-quantile (0 to 1) of the intervals' lengths. It is capped at the longest
    /// interval, because the middle of that interval's histogram bucket may be larger.
    pub(crate) fn quantile(&self, q: f64) -> Option<Nanos> {
        Some(self.histogram.quantile(q)?.min(self.tally.longest))
    }

    /// Returns the 99th percentile, or `None` if there are too few intervals ([`tellable`]).
    pub(crate) fn p99(&self) -> Option<Nanos> {
        let known = tellable(0.99, self.tally.count);
        self.quantile(0.99).filter(|_| known)
    }

    pub(crate) fn intervals(&self) -> Intervals {
        Intervals {
            count: self.tally.count,
            median: self.quantile(0.5),
            p99: self.p99(),
            max: self.tally.max(),
        }
    }

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

pub(crate) fn sort_parts(parts: &mut [Part]) {
    parts.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
}
