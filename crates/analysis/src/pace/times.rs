//! Distributions of times, limited to the quantiles that enough times support.

use ticktax_model::pace::{Distribution, Quantile};
use ticktax_model::{Histogram, Nanos, tellable};

/// Quantiles that are reported if there are enough times.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Maximum number of times kept individually. They take 512 KiB.
const KEPT: usize = 1 << 16;

/// Collects times in bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    histogram: Histogram,
    /// All times, provided that there are at most [`KEPT`].
    kept: Vec<Nanos>,
    count: u64,
    sum: i128,
    min: Option<Nanos>,
    max: Nanos,
}

impl Times {
    /// Adds a time. A negative time counts as 0.
    pub(super) fn add(&mut self, time: Nanos) {
        let time = time.max(Nanos::ZERO);
        self.histogram.record(time);
        if self.kept.len() < KEPT {
            self.kept.push(time);
        }
        self.count += 1;
        self.sum += i128::from(time.0);
        self.min = Some(self.min.map_or(time, |min| min.min(time)));
        self.max = self.max.max(time);
    }

    /// Adds `first`, `first` − `step`, and so on, `count` times in all. `step` must be positive. If
    /// there are too many times to keep them individually, the cost does not depend on `count`.
    pub(super) fn add_descending(&mut self, first: Nanos, step: Nanos, count: u64) {
        let room = (KEPT - self.kept.len()) as u64;
        if count <= room.max(1) {
            let mut time = first;
            for _ in 0..count {
                self.add(time);
                time -= step;
            }
            return;
        }
        self.histogram.record_descending(first, step, count);
        let (start, step, count_wide) =
            (i128::from(first.0), i128::from(step.0), i128::from(count));
        let last = (start - (count_wide - 1) * step).max(0);
        let positive = if start < 0 {
            0
        } else {
            (start / step + 1).min(count_wide)
        };
        self.sum += positive * start - step * (positive * (positive - 1) / 2);
        self.count += count;
        let last = Nanos(i64::try_from(last).unwrap_or(i64::MAX));
        self.min = Some(self.min.map_or(last, |min| min.min(last)));
        self.max = self.max.max(first);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        let room = KEPT - self.kept.len();
        self.kept.extend(other.kept.iter().take(room));
        self.count += other.count;
        self.sum += other.sum;
        self.min = match (self.min, other.min) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.max = self.max.max(other.max);
    }

    pub(super) fn distribution(&self) -> Option<Distribution> {
        let min = self.min?;
        let mean = i64::try_from(self.sum / i128::from(self.count)).unwrap_or(i64::MAX);
        let exact = self.kept.len() as u64 == self.count;
        let mut sorted = if exact { self.kept.clone() } else { Vec::new() };
        sorted.sort_unstable();
        let quantile = |&q: &f64| {
            let value = if exact {
                of_sorted(&sorted, q)
            } else {
                self.histogram.quantile(q)
            };
            Some(Quantile {
                q,
                value: value?.clamp(min, self.max),
            })
        };
        let known = QUANTILES.iter().filter(|&&q| tellable(q, self.count));
        Some(Distribution {
            count: self.count,
            min,
            mean: Nanos(mean),
            max: self.max,
            exact,
            quantiles: known.filter_map(quantile).collect(),
            buckets: self.histogram.buckets().collect(),
        })
    }
}

/// Returns the `q`-quantile of `sorted` (nearest rank).
fn of_sorted(sorted: &[Nanos], q: f64) -> Option<Nanos> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count is a valid index"
    )]
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Times;

    #[test]
    fn quantiles_without_enough_times_are_left_out() {
        let mut times = Times::default();
        assert_eq!(times.distribution(), None);
        for ns in 1..=100 {
            times.add(Nanos(ns * 1_000));
        }
        times.add(Nanos(-3));
        let distribution = times.distribution().unwrap();
        assert_eq!(
            (distribution.count, distribution.min, distribution.max.0),
            (101, Nanos::ZERO, 100_000)
        );
        assert_eq!(distribution.mean, Nanos(50_000));
        assert_eq!(distribution.quantile(0.9), Some(Nanos(90_000)));
        assert!(distribution.exact && distribution.quantile(0.99).is_none());
        assert_eq!(
            distribution
                .buckets
                .iter()
                .map(|bucket| bucket.count)
                .sum::<u64>(),
            101
        );
    }

    #[test]
    fn with_many_times_quantiles_are_as_accurate_as_the_buckets() {
        let mut times = Times::default();
        for ns in 0..70_000 {
            times.add(Nanos(ns));
        }
        let distribution = times.distribution().unwrap();
        assert!(!distribution.exact);
        let p90 = distribution.quantile(0.9).unwrap();
        assert!((p90.0 - 63_000).abs() < 63_000 / 8, "{p90}");
    }

    #[test]
    fn descending_times_are_added_like_single_ones() {
        let (first, step) = (Nanos(123_456_789), Nanos(1_003));
        let (mut single, mut series) = (Times::default(), Times::default());
        // Some of these times are negative, and there are too many to keep them all.
        for k in 0..200_000 {
            single.add(first - Nanos(k * step.0));
        }
        series.add_descending(first, step, 200_000);
        let (single, series) = (single.distribution(), series.distribution());
        assert_eq!(single, series);
        assert_eq!(series.unwrap().min, Nanos::ZERO);
    }

    #[test]
    fn merging_equals_adding_all_times() {
        let (mut one, mut other, mut all) = (Times::default(), Times::default(), Times::default());
        for ns in [5, 80, 2_000] {
            one.add(Nanos(ns));
            all.add(Nanos(ns));
        }
        for ns in [1, 90_000] {
            other.add(Nanos(ns));
            all.add(Nanos(ns));
        }
        one.merge(&other);
        assert_eq!(one.distribution(), all.distribution());
    }
}
