//! Log-linear histograms, in which each octave is divided into four equal steps. The BPF programs
//! fill the same buckets.

mod blob;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

pub use blob::BlobError;

/// Base-2 logarithm of the number of steps per octave. With four steps, every value in a bucket is
/// within ±11 % of the bucket's middle.
const STEPS_BITS: u32 = 2;
const STEPS: usize = 1 << STEPS_BITS;

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// Lower bound, inclusive.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// Upper bound, exclusive.
    #[serde(rename = "below_ns")]
    pub below: Nanos,
    /// Number of values.
    pub count: u64,
}

/// Counts of durations, starting at 0 ns. From 4 ns up, each bucket's width is at most 25 % of its
/// lower bound.
///
/// Bucket `i` holds durations from [`Histogram::lower`]`(i)` up to, but not including, `lower(i +
/// 1)`. The last bucket has no upper bound and holds all durations longer than about 60 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; Self::BUCKETS],
        }
    }
}

impl Histogram {
    /// Number of buckets. It must match the number in `record.h`.
    pub const BUCKETS: usize = 140;

    /// Returns the index of the bucket that holds `length`. Negative durations fall into the first
    /// bucket.
    pub fn bucket(length: Nanos) -> usize {
        let value = length.0.max(0).unsigned_abs();
        if value < STEPS as u64 {
            return usize::try_from(value).unwrap_or(0);
        }
        let octave = value.ilog2();
        let step = (value >> (octave - STEPS_BITS)) & (STEPS as u64 - 1);
        let step = usize::try_from(step).unwrap_or(0);
        (((octave - STEPS_BITS + 1) as usize) * STEPS + step).min(Self::BUCKETS - 1)
    }

    /// Returns the shortest duration that falls into bucket `index`.
    pub fn lower(index: usize) -> Nanos {
        if index < STEPS {
            return Nanos(i64::try_from(index).unwrap_or(0));
        }
        let octave = index / STEPS - 1;
        Nanos(i64::try_from(STEPS + index % STEPS).unwrap_or(0) << octave)
    }

    /// Returns the buckets that are not empty, shortest durations first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let counts = self.counts.iter().enumerate();
        let used = counts.filter(|&(_, &count)| count > 0);
        used.map(|(index, &count)| Bucket {
            from: Self::lower(index),
            below: Self::lower(index + 1),
            count,
        })
    }

    /// Returns a histogram with these counts; `None` unless there are exactly
    /// [`Histogram::BUCKETS`] of them.
    pub fn from_counts(counts: &[u64]) -> Option<Self> {
        (counts.len() == Self::BUCKETS).then(|| Self {
            counts: counts.to_vec(),
        })
    }

    /// Returns the counts of all buckets.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Counts one duration.
    pub fn record(&mut self, length: Nanos) {
        let count = &mut self.counts[Self::bucket(length)];
        *count = count.saturating_add(1);
    }

    /// Counts `count` durations: `first`, `first` − `step`, `first` − 2 · `step`, and so on. This
    /// takes the same time for any `count`. `step` must be positive.
    pub fn record_descending(&mut self, first: Nanos, step: Nanos, count: u64) {
        // Counts how many of these durations are at least `bound`.
        let at_least = |bound: Nanos| match first.0.checked_sub(bound.0) {
            Some(above) if above >= 0 => (above / step.0.max(1)).unsigned_abs().saturating_add(1),
            _ => 0,
        };
        let mut longer = 0;
        for (index, in_bucket) in self.counts.iter_mut().enumerate().rev() {
            let reached = match index {
                0 => count,
                _ => at_least(Self::lower(index)).min(count),
            };
            *in_bucket = in_bucket.saturating_add(reached - longer);
            longer = reached;
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the counts added since `before`, an earlier state of this histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = self.counts.iter().zip(&before.counts);
        Self {
            counts: counts
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
        }
    }

    /// Returns how many durations were counted.
    pub fn total(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Returns the `q`-quantile for a `q` from 0 to 1; `None` if the histogram is empty. The result
    /// is the middle of the bucket that contains the quantile.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the product lies between 0 and a count"
        )]
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0_u64;
        let index = self.counts.iter().position(|&count| {
            seen = seen.saturating_add(count);
            seen >= rank
        })?;
        let (low, high) = (Self::lower(index), Self::lower(index + 1));
        Some(Nanos(i64::midpoint(low.0, high.0 - 1)))
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is a share of a few hundred"
)]
mod tests {
    use proptest::prelude::*;

    use super::Histogram;
    use crate::Nanos;

    proptest! {
        #[test]
        fn descending_durations_are_counted_like_single_ones(
            first in -1_000i64..100_000_000_000,
            step in 1i64..1_000_000_000,
            count in 0u64..300,
        ) {
            let (mut single, mut series) = (Histogram::default(), Histogram::default());
            for k in 0..count.cast_signed() {
                single.record(Nanos(first - k * step));
            }
            series.record_descending(Nanos(first), Nanos(step), count);
            prop_assert_eq!(single, series);
        }

        #[test]
        fn a_duration_lies_within_the_bounds_of_its_bucket(ns in 0i64..60_000_000_000) {
            let bucket = Histogram::bucket(Nanos(ns));
            prop_assert!(Histogram::lower(bucket).0 <= ns);
            prop_assert!(ns < Histogram::lower(bucket + 1).0);
        }

        #[test]
        fn a_quantile_falls_into_the_bucket_of_the_exact_one(
            mut lengths in prop::collection::vec(1i64..1_000_000_000, 1..300), q in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::default();
            for &ns in &lengths {
                histogram.record(Nanos(ns));
            }
            lengths.sort_unstable();
            let rank = ((q * lengths.len() as f64).ceil() as usize).max(1);
            let exact = Nanos(lengths[rank - 1]);
            let estimate = histogram.quantile(q).unwrap();
            prop_assert_eq!(Histogram::bucket(estimate), Histogram::bucket(exact));
        }
    }

    #[test]
    fn durations_beyond_the_range_fall_into_the_outer_buckets() {
        assert_eq!(Histogram::bucket(Nanos::MAX), Histogram::BUCKETS - 1);
        assert_eq!(Histogram::bucket(Nanos(-5)), 0);
        assert!(Histogram::lower(Histogram::BUCKETS - 1) > Nanos::from_secs(50));
    }

    #[test]
    fn since_returns_the_counts_added_after_a_snapshot() {
        let mut before = Histogram::default();
        before.record(Nanos(5));
        let mut now = before.clone();
        now.record(Nanos(70));
        let new = now.since(&before);
        assert_eq!((new.total(), new.quantile(0.5)), (1, Some(Nanos(71))));
        assert_eq!(before.since(&now).total(), 0);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
