//! Estimates the smallest effect that a trial can detect, before its blocks are run.

use ticktax_analysis::judge::{FALSE_VERDICTS, level};
use ticktax_model::comparison::{Effect, Scale};

use crate::statistics::{mean, mean_interval_at, student_quantile};

/// Probability that an experiment finds an effect of the detectable size.
const POWER: f64 = 0.8;
/// Minimum number of successive runs needed to estimate the noise.
const FEWEST_RUNS: usize = 6;
/// Maximum number of blocks to suggest.
const MOST_BLOCKS: u64 = 10_000;
/// Ratio of the smallest effect that a rank test can find to the smallest that a t test can find,
/// for normally distributed values: 1/√(3/π) (Lehmann 1975, 2.4).
const RANKS: f64 = 1.023_3;
/// Correction of the detectable effect for a small number of blocks, to be divided by the square of
/// that number. With few values, a rank test is coarse, and the interval must also exclude 0. The
/// value was fitted to 6 to 40 blocks. The benchmark `trial_benchmark` measures how often an effect
/// of the detectable size is found.
const FEW_BLOCKS: f64 = 8.0;

/// The machine's noise, and the smallest effect that a trial can detect despite it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detectable {
    /// Scale of `noise` and `effect`.
    pub scale: Scale,
    /// Standard deviation of the difference within a block when the two arms do not differ.
    pub noise: f64,
    /// Size of an effect that four out of five trials would find. `None` if there are too few
    /// blocks for any effect to be significant ([`fewest_blocks`]), or if all runs had the same
    /// value, so that the noise is unknown.
    pub effect: Option<f64>,
}

/// Estimates what a trial with `blocks` blocks can detect. `aa` contains the values of successive
/// runs of the same arm.
///
/// `comparisons` is the number of metrics multiplied by the number of arms after the first. Returns
/// `None` if fewer than six values are finite.
///
/// Four successive runs form a block that compares the arm with itself. The estimate uses the
/// difference between the outer two runs and the inner two, which cancels a steady drift. These
/// blocks overlap: each starts one run after the previous one. At the detectable effect, a t test
/// of the differences has a power of 80 % at the level for the smallest p-value (Holm 1979). The
/// effect is then slightly enlarged, because the verdict uses a rank test.
pub fn detectable(aa: &[f64], blocks: u64, comparisons: usize) -> Option<Detectable> {
    let values: Vec<f64> = aa
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    if values.len() < FEWEST_RUNS {
        return None;
    }
    let scale = scale_of(&values, &[]);
    let differences: Vec<f64> = values
        .windows(4)
        .map(|runs| {
            let outer = f64::midpoint(runs[0], runs[3]);
            let inner = f64::midpoint(runs[1], runs[2]);
            additive_difference(scale, inner, outer)
        })
        .collect();
    let squares: f64 = differences
        .iter()
        .map(|difference| difference * difference)
        .sum();
    let noise = (squares / differences.len() as f64).sqrt();
    let effect = (blocks >= fewest_blocks(comparisons) && noise > 0.0)
        .then(|| effect_of(scale, least_effect(noise, blocks, level(comparisons))));
    Some(Detectable {
        scale,
        noise: effect_of(scale, noise),
        effect,
    })
}

/// Returns the relative scale if all values in both lists are positive, or else the absolute scale.
pub fn scale_of(first: &[f64], second: &[f64]) -> Scale {
    let mut all = first.iter().chain(second);
    if all.all(|value| *value > 0.0) {
        Scale::Relative
    } else {
        Scale::Absolute
    }
}

/// Returns the difference from `a` to `b` in a form in which differences add up: the logarithm of
/// their ratio on the relative scale, or else the plain difference.
pub fn additive_difference(scale: Scale, a: f64, b: f64) -> f64 {
    match scale {
        Scale::Relative => (b / a).ln(),
        Scale::Absolute => b - a,
    }
}

/// Converts an additive difference to an effect: a fraction on the relative scale, or else the
/// difference itself.
pub fn effect_of(scale: Scale, sum: f64) -> f64 {
    match scale {
        Scale::Relative => sum.exp_m1(),
        Scale::Absolute => sum,
    }
}

/// Returns the mean of additive differences as an effect, with its 95 % confidence interval; `None`
/// if there are fewer than two differences.
pub fn mean_effect(scale: Scale, differences: &[f64]) -> Option<Effect> {
    mean_effect_at(scale, differences, FALSE_VERDICTS)
}

/// Returns the mean of additive differences as an effect, with a confidence interval that misses
/// the true effect with the probability `misses`; `None` if there are fewer than two differences.
pub fn mean_effect_at(scale: Scale, differences: &[f64], misses: f64) -> Option<Effect> {
    mean_interval_at(differences, misses).map(|(low, high)| Effect {
        value: effect_of(scale, mean(differences)),
        low: effect_of(scale, low),
        high: effect_of(scale, high),
    })
}

/// Converts an effect to an additive difference, the inverse of [`effect_of`].
pub fn sum_of(scale: Scale, effect: f64) -> f64 {
    match scale {
        Scale::Relative => effect.ln_1p(),
        Scale::Absolute => effect,
    }
}

/// Returns the minimum number of blocks for a significant difference. With fewer, all differences
/// have the same sign too often by chance.
pub fn fewest_blocks(comparisons: usize) -> u64 {
    let mut blocks = 1;
    let mut chance = 1.0;
    while chance > level(comparisons) && blocks < 60 {
        blocks += 1;
        chance /= 2.0;
    }
    blocks
}

/// Returns the smallest effect that the rank test finds with a power of 80 %.
fn least_effect(noise: f64, blocks: u64, level: f64) -> f64 {
    let few = blocks as f64;
    RANKS * (1.0 + FEW_BLOCKS / (few * few)) * least_effect_by_t(noise, blocks, level)
}

/// Returns the smallest effect that Student's t test finds with a power of 80 %.
pub fn least_effect_by_t(noise: f64, blocks: u64, level: f64) -> f64 {
    let freedom = blocks.max(2) as f64 - 1.0;
    let quantiles = student_quantile(1.0 - level / 2.0, freedom) + student_quantile(POWER, freedom);
    quantiles * noise / (blocks as f64).sqrt()
}

/// Returns half the width of the 95 % confidence interval of a mean over `blocks` blocks.
fn margin(noise: f64, blocks: u64) -> f64 {
    let freedom = blocks.max(2) as f64 - 1.0;
    student_quantile(0.975, freedom) * noise / (blocks as f64).sqrt()
}

/// Returns how many blocks are needed for a verdict if the true effect is `effect`.
///
/// This is the smallest number of blocks that either shows the effect or keeps the interval within
/// `limit`. All sizes are additive differences. Returns `None` if the number is above 10,000.
pub fn blocks_for_a_verdict(
    effect: f64,
    noise: f64,
    limit: f64,
    comparisons: usize,
) -> Option<u64> {
    let (effect, level) = (effect.abs(), level(comparisons));
    let enough = |blocks: u64| {
        least_effect(noise, blocks, level) <= effect || margin(noise, blocks) <= limit - effect
    };
    fewest_that(fewest_blocks(comparisons), enough)
}

/// Returns the smallest number of blocks, starting at `low`, that satisfies `enough`; `None` if it
/// is above 10,000.
pub fn fewest_that(mut low: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
    let mut high = MOST_BLOCKS;
    if !enough(high) {
        return None;
    }
    while low < high {
        let middle = low.midpoint(high);
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::Scale;

    use super::{blocks_for_a_verdict, detectable, fewest_blocks, margin};

    #[test]
    fn fewer_than_the_minimum_of_blocks_detect_nothing() {
        // For six blocks, the p-value of equal signs is 2/2^6 = 3.1 %. With five comparisons, the
        // level is 1 %, which takes eight blocks with a p-value of 2/2^8 = 0.8 %.
        assert_eq!(fewest_blocks(1), 6);
        assert_eq!(fewest_blocks(5), 8);
        let aa = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 10.1];
        assert_eq!(detectable(&aa, 5, 1).unwrap().effect, None);
        assert!(detectable(&aa, 6, 1).unwrap().effect.is_some());
        assert_eq!(detectable(&aa[..5], 10, 1), None);
        let same = detectable(&[0.0; 12], 10, 1).unwrap();
        assert_eq!((same.noise, same.effect), (0.0, None));
        assert_eq!(detectable(&[f64::NAN; 9], 10, 1), None);
    }

    #[test]
    fn noise_is_per_block_and_excludes_drift() {
        let drifting: Vec<f64> = (0..12).map(|i| 1000.0 + f64::from(i)).collect();
        let estimate = detectable(&drifting, 10, 1).unwrap();
        assert_eq!(estimate.scale, Scale::Relative);
        assert!(estimate.noise < 1e-5, "{estimate:?}");
        // Every other run takes 2 % longer, so each block of four runs has the pattern A B A B, and
        // its outer and inner runs have equal means.
        let alternating: Vec<f64> = (0..12).map(|i| f64::from(100 + 2 * (i % 2))).collect();
        assert!(detectable(&alternating, 10, 1).unwrap().noise < 1e-9);
        // A single step of 2 affects two of the nine blocks.
        let step: Vec<f64> = (0..12).map(|i| if i < 6 { 0.0 } else { 2.0 }).collect();
        let estimate = detectable(&step, 10, 1).unwrap();
        assert_eq!(estimate.scale, Scale::Absolute);
        assert!(
            (estimate.noise - (2.0_f64 / 9.0).sqrt()).abs() < 1e-9,
            "{estimate:?}"
        );
    }

    #[test]
    fn more_blocks_detect_smaller_effects() {
        let aa = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 10.1, 9.9, 10.1];
        let effect = |blocks, comparisons| {
            detectable(&aa, blocks, comparisons)
                .unwrap()
                .effect
                .unwrap()
        };
        assert!(effect(10, 1) > 1.9 * effect(40, 1));
        assert!(effect(10, 5) > effect(10, 1));
    }

    #[test]
    fn the_blocks_for_a_verdict_are_counted() {
        // This verdict takes (1.96 + 0.84)² · 1.023² · (2 / 1)² = 33 blocks, plus two because
        // Student's t is wider than the normal distribution.
        let found = blocks_for_a_verdict(0.01, 0.02, 0.0, 1).unwrap();
        assert!((33..=36).contains(&found), "{found}");
        // Keeping the interval within 5 % takes fewer blocks than finding such a small effect.
        let kept = blocks_for_a_verdict(0.001, 0.02, 0.05, 1).unwrap();
        assert_eq!(kept, fewest_blocks(1));
        assert!(margin(0.02, kept) <= 0.049);
        assert_eq!(blocks_for_a_verdict(0.0, 1.0, 0.0, 1), None);
        assert_eq!(blocks_for_a_verdict(0.0, 0.0, 0.05, 1), Some(6));
    }
}
