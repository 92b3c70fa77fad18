//! Lengths of time from one tick to the next in which a CPU idled.

use ticktax_model::{Histogram, Nanos};

/// Counts and sums of lengths, by bucket of a [`Histogram`], so that they can be split at a length
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
    /// Takes note of one.
    pub(super) fn add(&mut self, length: Nanos) {
        let (count, time) = &mut self.buckets[Histogram::bucket(length)];
        *count += 1;
        *time += length;
    }

    /// Pauses of about two ticks of `period` or more: how many, and how many ticks they saved.
    pub(super) fn saved(&self, period: Nanos) -> (u64, u64) {
        // Two ticks in a row are seen some µs more or less than a period apart; a pause is two
        // periods or more. Half-way between the two no bucket's edge is near either.
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
