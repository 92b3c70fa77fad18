//! How times are distributed, and what a number of them can tell.

use ticktax_model::pace::{Bucket, Distribution, Quantile};
use ticktax_model::{Histogram, Nanos};

/// The quantiles that are told where there are enough times.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The probability with which a quantile must have a longer time among those that were seen.
const CONFIDENCE: f64 = 0.95;

/// Whether `count` times can tell the quantile `q`: with 95 % confidence at least one of them is
/// longer than the true quantile, as `q^count` is the probability that none is. From 5 times on
/// for the median, 29 for 0.9, 299 for 0.99, 2995 for 0.999.
pub fn tellable(q: f64, count: u64) -> bool {
    count as f64 * q.ln() <= (1.0 - CONFIDENCE).ln()
}

/// Up to so many times are kept one by one, 512 KiB.
const KEPT: usize = 1 << 16;

/// Times as they come, in bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    histogram: Histogram,
    /// All of them, as long as there is room.
    kept: Vec<Nanos>,
    count: u64,
    sum: i128,
    min: Option<Nanos>,
    max: Nanos,
}

impl Times {
    /// Takes a time; one below 0 counts as none at all.
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

    /// What they say; `None` where there is none.
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
        let told = QUANTILES.iter().filter(|&&q| tellable(q, self.count));
        Some(Distribution {
            count: self.count,
            min,
            mean: Nanos(mean),
            max: self.max,
            exact,
            quantiles: told.filter_map(quantile).collect(),
            buckets: buckets(&self.histogram),
        })
    }
}

/// The buckets of a histogram that hold any time.
pub(crate) fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    let counts = histogram.counts().iter().enumerate();
    let any = counts.filter(|&(_, &count)| count > 0);
    any.map(|(index, &count)| Bucket {
        from: Histogram::lower(index),
        below: Histogram::lower(index + 1),
        count,
    })
    .collect()
}

/// The least of some sorted times that the share `q` of them does not exceed.
fn of_sorted(sorted: &[Nanos], q: f64) -> Option<Nanos> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Times, tellable};

    #[test]
    fn a_quantile_needs_a_time_beyond_it() {
        for (q, min) in [(0.5, 5), (0.9, 29), (0.99, 299), (0.999, 2_995)] {
            assert!(tellable(q, min) && !tellable(q, min - 1), "{q}");
        }
    }

    #[test]
    fn what_too_few_times_cannot_tell_is_left_out() {
        let mut times = Times::default();
        assert_eq!(times.distribution(), None);
        for ns in 1..=100 {
            times.add(Nanos(ns * 1_000));
        }
        times.add(Nanos(-3));
        let told = times.distribution().unwrap();
        assert_eq!(
            (told.count, told.min, told.max.0),
            (101, Nanos::ZERO, 100_000)
        );
        assert_eq!(told.mean, Nanos(50_000));
        assert_eq!(told.quantile(0.9), Some(Nanos(90_000)));
        assert!(told.exact && told.quantile(0.99).is_none());
        assert_eq!(
            told.buckets.iter().map(|bucket| bucket.count).sum::<u64>(),
            101
        );
    }

    #[test]
    fn where_they_are_many_quantiles_are_as_good_as_their_buckets() {
        let mut times = Times::default();
        for ns in 0..70_000 {
            times.add(Nanos(ns));
        }
        let told = times.distribution().unwrap();
        assert!(!told.exact);
        let p90 = told.quantile(0.9).unwrap();
        assert!((p90.0 - 63_000).abs() < 63_000 / 8, "{p90}");
    }

    #[test]
    fn merging_is_adding_all() {
        let (mut one, mut other, mut both) = (Times::default(), Times::default(), Times::default());
        for ns in [5, 80, 2_000] {
            one.add(Nanos(ns));
            both.add(Nanos(ns));
        }
        for ns in [1, 90_000] {
            other.add(Nanos(ns));
            both.add(Nanos(ns));
        }
        one.merge(&other);
        assert_eq!(one.distribution(), both.distribution());
    }
}
