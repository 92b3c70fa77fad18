//! Confidence intervals of quantiles and of their differences.

use statrs::distribution::{ContinuousCDF, Normal};
use ticktax_model::comparison::Effect;

/// Variance of a binomial distribution above which it is replaced by a normal distribution.
const LARGEST_VARIANCE: f64 = 1e8;
/// Probability, relative to the most likely outcome, below which outcomes are left out.
const NEGLIGIBLE: f64 = 1e-24;

/// The ranks of the sorted values that estimate and bound a quantile.
///
/// The number of values up to the true quantile q has a binomial distribution, with the parameters
/// n and q, for any distribution of independent values. So the probability that the value of rank l
/// is above the true quantile is that of fewer than l such values (Thompson 1936; David and
/// Nagaraja, Order Statistics, 2003, 7.1).
#[derive(Debug)]
pub struct QuantileRanks {
    count: u64,
    quantile: f64,
    /// Exact probabilities; `None` if the variance is so large that the normal approximation is as
    /// good.
    tails: Option<Tails>,
}

/// Cumulative probabilities of the likely outcomes of a binomial distribution.
#[derive(Debug)]
struct Tails {
    /// The lowest of these outcomes.
    first: u64,
    /// Probability of each outcome or a lower one.
    up_to: Vec<f64>,
    /// Probability of each outcome or a higher one.
    from: Vec<f64>,
}

impl QuantileRanks {
    /// Computes the ranks for a quantile, above 0 and below 1, of `count` values.
    pub fn new(count: u64, quantile: f64) -> Self {
        let variance = count as f64 * quantile * (1.0 - quantile);
        Self {
            count,
            quantile,
            tails: (variance <= LARGEST_VARIANCE).then(|| Tails::new(count, quantile)),
        }
    }

    /// Returns the rank of the value that estimates the quantile, from 1: the smallest value that
    /// at least this share of the values does not exceed. Returns 0 for an empty sample.
    pub fn estimate(&self) -> u64 {
        // The quantile 0.999 of 1,000 values is the value of rank 999, despite rounding.
        let exact = self.count as f64 * self.quantile * (1.0 - 4.0 * f64::EPSILON);
        whole(exact.ceil()).clamp(self.count.min(1), self.count)
    }

    /// Returns the ranks of the two values that enclose the true quantile, except with the
    /// probability `misses`. Returns `None` if there are too few values for this.
    pub fn interval(&self, misses: f64) -> Option<(u64, u64)> {
        let tail = misses / 2.0;
        let (low, high) = match &self.tails {
            Some(tails) => {
                let below = tails.up_to.partition_point(|&chance| chance <= tail) as u64;
                let above = tails.from.partition_point(|&chance| chance > tail) as u64;
                // If the lowest listed outcome is too likely, its rank is 0, which no value has.
                (tails.first + below, tails.first + above)
            }
            None => self.normal_interval(tail),
        };
        (low >= 1 && high <= self.count).then_some((low, high))
    }

    /// Returns the smallest number of values that gives the quantile an interval. The interval
    /// misses with the probability `misses`.
    pub fn fewest(quantile: f64, misses: f64) -> u64 {
        // All values are on the same side of the quantile with a probability of q^n or (1 - q)^n.
        let extreme = quantile.max(1.0 - quantile);
        let mut count = whole(((misses / 2.0).ln() / extreme.ln()).floor()).max(1);
        while Self::new(count, quantile).interval(misses).is_none() {
            count += 1;
        }
        count
    }

    fn normal_interval(&self, tail: f64) -> (u64, u64) {
        let mean = self.count as f64 * self.quantile;
        let deviation = (mean * (1.0 - self.quantile)).sqrt();
        let margin = -Normal::standard().inverse_cdf(tail.max(1e-300)) * deviation;
        (
            whole((mean - margin).floor()),
            whole((mean + margin).ceil()) + 1,
        )
    }
}

impl Tails {
    fn new(count: u64, quantile: f64) -> Self {
        let odds = quantile / (1.0 - quantile);
        let mode = whole(((count as f64 + 1.0) * quantile).floor()).min(count);
        let mut falling = Vec::new();
        let mut chance = 1.0;
        let mut outcome = mode;
        while outcome > 0 && chance > NEGLIGIBLE {
            chance *= outcome as f64 / ((count - outcome + 1) as f64 * odds);
            outcome -= 1;
            falling.push(chance);
        }
        let first = outcome;
        let mut chances: Vec<f64> = falling.into_iter().rev().chain([1.0]).collect();
        chance = 1.0;
        outcome = mode;
        while outcome < count && chance > NEGLIGIBLE {
            outcome += 1;
            chance *= (count - outcome + 1) as f64 * odds / outcome as f64;
            chances.push(chance);
        }
        let total: f64 = chances.iter().sum();
        let running = |sum: &mut f64, chance: &f64| {
            *sum += chance / total;
            Some(*sum)
        };
        let mut from: Vec<f64> = chances.iter().rev().scan(0.0, running).collect();
        from.reverse();
        Self {
            first,
            up_to: chances.iter().scan(0.0, running).collect(),
            from,
        }
    }
}

/// Returns the difference between two independent estimates and its confidence interval, from an
/// interval of each at the same level: `second - first`.
///
/// The method is MOVER, the method of variance estimates recovery (Zou and Donner 2008,
/// "Construction of confidence limits about effect measures: a general approach", Statistics in
/// Medicine 27, pages 1693 to 1702; Newcombe 1998 used it for proportions). For a ratio, pass
/// logarithms.
pub fn difference_of_estimates(first: Effect, second: Effect) -> Effect {
    let value = second.value - first.value;
    let margin = |second: f64, first: f64| second.hypot(first);
    Effect {
        value,
        low: value - margin(second.value - second.low, first.high - first.value),
        high: value + margin(second.high - second.value, first.value - first.low),
    }
}

/// Converts a nonnegative whole number, and a negative one to 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF};
    use ticktax_model::Nanos;
    use ticktax_model::comparison::Effect;
    use ticktax_sim::{Law, Stream};

    use super::{QuantileRanks, difference_of_estimates};

    /// The ranks are those of published tables (Conover, Practical Nonparametric Statistics, 1999,
    /// table A3, and David and Nagaraja 2003, 7.1).
    #[test]
    fn ranks_of_published_tables() {
        let ranks = |count, quantile| QuantileRanks::new(count, quantile).interval(0.05);
        assert_eq!(ranks(100, 0.5), Some((40, 61)));
        assert_eq!(ranks(10, 0.5), Some((2, 9)));
        assert_eq!(ranks(6, 0.5), Some((1, 6)));
        assert_eq!(ranks(5, 0.5), None);
    }

    /// A second derivation with another implementation of the binomial distribution.
    #[test]
    fn ranks_agree_with_the_binomial_distribution() {
        for count in [1_u64, 7, 40, 500, 3_000] {
            for quantile in [0.5, 0.9, 0.99, 0.999] {
                let binomial = Binomial::new(quantile, count).unwrap();
                for misses in [0.5, 0.05, 0.001] {
                    let below = (1..=count).rev();
                    let low = below
                        .clone()
                        .find(|rank| binomial.cdf(rank - 1) <= misses / 2.0);
                    let high = (1..=count).find(|rank| binomial.sf(rank - 1) <= misses / 2.0);
                    let expected = low.zip(high);
                    let found = QuantileRanks::new(count, quantile).interval(misses);
                    assert_eq!(found, expected, "{count} {quantile} {misses}");
                }
            }
        }
    }

    #[test]
    fn estimates_are_the_smallest_values_that_reach_the_share() {
        let rank = |count, quantile| QuantileRanks::new(count, quantile).estimate();
        assert_eq!(rank(1_000, 0.999), 999);
        assert_eq!(rank(1_001, 0.999), 1_000);
        assert_eq!(rank(100, 0.99), 99);
        assert_eq!(rank(3, 0.5), 2);
        assert_eq!(rank(1, 0.5), 1);
        assert_eq!(rank(0, 0.5), 0);
        assert_eq!(rank(1 << 40, 0.5), 1 << 39);
    }

    #[test]
    fn the_fewest_values_for_an_interval() {
        assert_eq!(QuantileRanks::fewest(0.5, 0.05), 6);
        assert_eq!(QuantileRanks::fewest(0.9, 0.05), 36);
        assert_eq!(QuantileRanks::fewest(0.99, 0.05), 368);
        assert_eq!(QuantileRanks::fewest(0.999, 0.05), 3_688);
    }

    /// The normal approximation takes over where it differs by less than a thousandth of the
    /// interval.
    #[test]
    fn large_counts_have_the_same_ranks_by_both_methods() {
        let ranks = QuantileRanks::new(200_000_000, 0.5);
        let (low, high) = ranks.interval(0.05).unwrap();
        let (about_low, about_high) = ranks.normal_interval(0.025);
        assert!(ranks.tails.is_some());
        assert!(low.abs_diff(about_low) < 10, "{low} {about_low}");
        assert!(high.abs_diff(about_high) < 10, "{high} {about_high}");
        let huge = QuantileRanks::new(1 << 40, 0.5);
        assert!(huge.tails.is_none());
        let (low, high) = huge.interval(0.05).unwrap();
        assert!(low < 1 << 39 && high > 1 << 39);
        assert!((1_020_000..1_040_000).contains(&((1 << 39) - low)), "{low}");
    }

    /// Draws values with an exponential distribution, whose quantiles are known.
    fn exponential(stream: &mut Stream, count: u64, mean: i64) -> Vec<f64> {
        let law = Law::Exponential(Nanos(mean));
        let mut values: Vec<f64> = (0..count).map(|_| stream.draw(&law).0 as f64).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn estimate(values: &[f64], quantile: f64) -> Effect {
        let ranks = QuantileRanks::new(values.len() as u64, quantile);
        let (low, high) = ranks.interval(0.05).unwrap();
        let at = |rank: u64| values[usize::try_from(rank).unwrap() - 1].ln();
        Effect {
            value: at(ranks.estimate()),
            low: at(low),
            high: at(high),
        }
    }

    /// The intervals contain the true value in at least 95 % of the samples, apart from the noise
    /// of 2,000 draws (a standard deviation of 0.5 %), but not in nearly all of them.
    #[test]
    fn intervals_contain_the_true_value_as_often_as_they_claim() {
        const DRAWS: u32 = 2_000;
        let mut stream = Stream::new(7, 0);
        for (quantile, count) in [(0.5, 60), (0.9, 200), (0.99, 1_000)] {
            let (mut alone, mut ratio) = (0, 0);
            for _ in 0..DRAWS {
                let a = exponential(&mut stream, count, 1_000_000);
                let b = exponential(&mut stream, 2 * count, 1_500_000);
                let (a, b) = (estimate(&a, quantile), estimate(&b, quantile));
                let truth = (-1e6 * f64::ln(1.0 - quantile)).ln();
                alone += u32::from(a.low <= truth && truth <= a.high);
                let effect = difference_of_estimates(a, b);
                let truth = f64::ln(1.5);
                ratio += u32::from(effect.low <= truth && truth <= effect.high);
            }
            for (name, hits) in [("alone", alone), ("ratio", ratio)] {
                let share = f64::from(hits) / f64::from(DRAWS);
                assert!((0.94..0.985).contains(&share), "{name} {quantile}: {share}");
            }
        }
    }
}
