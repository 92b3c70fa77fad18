//! Random times that can be reproduced from a seed. Each task and each interrupt source draws from
//! its own stream, so changing one does not alter the times that another draws.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use ticktax_model::Nanos;

use crate::fixed::{narrow, neg_ln};

/// A probability distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// A constant.
    Fixed(Nanos),
    /// A normal distribution with this mean and standard deviation. Values are clamped to within
    /// six standard deviations of the mean, and are never negative.
    Normal(Nanos, Nanos),
    /// An exponential distribution with this mean, like the intervals between independent events.
    Exponential(Nanos),
    /// The sum of the first value and an exponentially distributed time whose mean is the second
    /// value, like the intervals between events that keep a minimum distance.
    Spaced(Nanos, Nanos),
    /// A uniform distribution from the first value up to, but excluding, the second.
    Uniform(Nanos, Nanos),
}

impl Law {
    /// Returns the mean. For a normal distribution, this ignores the limits on its values.
    pub fn mean(&self) -> Nanos {
        match *self {
            Self::Fixed(time) | Self::Normal(time, _) | Self::Exponential(time) => time,
            Self::Spaced(min, mean) => min + mean,
            Self::Uniform(low, high) => Nanos(low.0 + (high.0 - low.0) / 2),
        }
    }

    /// Shifts the distribution by `more`, which must be at least 0.
    #[must_use]
    pub fn plus(&self, more: Nanos) -> Self {
        match *self {
            Self::Fixed(time) => Self::Fixed(time + more),
            Self::Normal(mean, sd) => Self::Normal(mean + more, sd),
            Self::Exponential(mean) => Self::Spaced(more, mean),
            Self::Spaced(min, mean) => Self::Spaced(min + more, mean),
            Self::Uniform(low, high) => Self::Uniform(low + more, high + more),
        }
    }

    /// Returns whether all parameters are at least 0 and, for a uniform distribution, the range is
    /// not empty.
    pub fn is_sound(&self) -> bool {
        match *self {
            Self::Fixed(time) | Self::Exponential(time) => time >= Nanos::ZERO,
            Self::Normal(a, b) | Self::Spaced(a, b) => a >= Nanos::ZERO && b >= Nanos::ZERO,
            Self::Uniform(low, high) => low >= Nanos::ZERO && low < high,
        }
    }
}

/// A stream of random times.
#[derive(Clone, Debug)]
pub struct Stream(Pcg64);

impl Stream {
    /// Creates stream number `number` of `seed`.
    pub fn new(seed: u64, number: u64) -> Self {
        Self(Pcg64::new(
            u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5,
            u128::from(number),
        ))
    }

    /// Draws a time from `law`. The result is never negative.
    pub fn draw(&mut self, law: &Law) -> Nanos {
        match *law {
            Law::Fixed(time) => time,
            Law::Normal(mean, sd) => {
                // The sum of twelve uniform values is approximately normal (Irwin–Hall).
                let sum: i64 = (0..6)
                    .map(|_| {
                        let bits = self.0.next_u64();
                        i64::from(high(bits)) + i64::from(low(bits))
                    })
                    .sum();
                let z = sum - 6 * i64::from(u32::MAX);
                let off = (i128::from(z) * i128::from(sd.0)) >> 32;
                (mean + Nanos(narrow(off))).max(Nanos::ZERO)
            }
            Law::Exponential(mean) => {
                let e = neg_ln(high(self.0.next_u64()));
                Nanos(narrow((i128::from(e) * i128::from(mean.0)) >> 32))
            }
            Law::Spaced(min, mean) => min + self.draw(&Law::Exponential(mean)),
            Law::Uniform(low, high) => {
                let width = i128::from((high - low).0);
                low + Nanos(narrow((i128::from(self.0.next_u64()) * width) >> 64))
            }
        }
    }
}

fn high(bits: u64) -> u32 {
    u32::try_from(bits >> 32).unwrap_or(u32::MAX)
}

fn low(bits: u64) -> u32 {
    u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Law, Stream};
    use ticktax_model::Nanos;

    fn moments(law: &Law) -> (f64, f64) {
        let mut stream = Stream::new(1, 2);
        let draws: Vec<f64> = (0..200_000).map(|_| stream.draw(law).0 as f64).collect();
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        (mean, variance.sqrt())
    }

    #[test]
    fn plus_moves_a_law_and_keeps_its_deviation() {
        let more = Nanos(300_000);
        for law in [
            Law::Fixed(Nanos(1_000_000)),
            Law::Normal(Nanos(1_000_000), Nanos(100_000)),
            Law::Exponential(Nanos(1_000_000)),
            Law::Spaced(Nanos(400_000), Nanos(600_000)),
            Law::Uniform(Nanos(0), Nanos(2_000_000)),
        ] {
            let ((mean, sd), (moved, same)) = (moments(&law), moments(&law.plus(more)));
            assert!((moved - mean - 3e5).abs() < 1.0, "{law:?}");
            assert!((same - sd).abs() < 1.0, "{law:?}");
            assert_eq!(law.plus(more).mean(), law.mean() + more);
        }
    }

    #[test]
    fn laws_have_the_stated_mean_and_deviation() {
        let million = Nanos(1_000_000);
        for (law, mean, sd) in [
            (Law::Fixed(million), 1e6, 0.0),
            (Law::Normal(million, Nanos(100_000)), 1e6, 1e5),
            (Law::Exponential(million), 1e6, 1e6),
            (Law::Spaced(Nanos(400_000), Nanos(600_000)), 1e6, 6e5),
            (
                Law::Uniform(Nanos(0), Nanos(2_000_000)),
                1e6,
                2e6 / 12_f64.sqrt(),
            ),
        ] {
            let (m, s) = moments(&law);
            assert!((m - mean).abs() < 8e3, "{law:?}: mean {m}");
            assert!((s - sd).abs() < 1.2e4, "{law:?}: deviation {s}");
        }
    }

    #[test]
    fn streams_repeat_and_differ() {
        let law = Law::Exponential(Nanos(1_000_000));
        let draws = |seed, number| {
            let mut stream = Stream::new(seed, number);
            [(); 4].map(|()| stream.draw(&law))
        };
        assert_eq!(draws(7, 1), draws(7, 1));
        assert_ne!(draws(7, 1), draws(7, 2));
        assert_ne!(draws(7, 1), draws(8, 1));
    }
}
