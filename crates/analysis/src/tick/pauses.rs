//! Intervals between ticks in which a CPU was idle.

use ticktax_model::{Histogram, Nanos};

/// Count and total time per [`Histogram`] bucket. With buckets, the pauses can be split at a length
/// that is known only at the end.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    buckets: Vec<(u64, Nanos)>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            buckets: vec![(0, Nanos::ZERO); Histogram::BUCKETS],
        }
    }
}

impl Pauses {
    pub(super) fn add(&mut self, length: Nanos) {
        let (count, time) = &mut self.buckets[Histogram::bucket(length)];
        *count += 1;
        *time += length;
    }

    /// Returns how many pauses lasted about two ticks of `period` or more, and how many ticks they
    /// saved.
    pub(super) fn saved(&self, period: Nanos) -> (u64, u64) {
        // The interval between consecutive ticks varies around the period by a few µs, whereas a
        // pause lasts at least two periods. The limit is halfway between, far enough from both even
        // when it is rounded to the edge of a bucket.
        let from = Histogram::bucket(Nanos(period.0 + period.0 / 2));
        let pauses = self.buckets[from..].iter();
        let (count, time) = pauses.fold((0, Nanos::ZERO), |sum, pause| {
            (sum.0 + pause.0, sum.1 + pause.1)
        });
        let periods = if period > Nanos::ZERO {
            time.0 / period.0
        } else {
            0
        };
        (count, periods.unsigned_abs().saturating_sub(count))
    }
}
