//! What a trial can tell apart, as it is known before its blocks.

use ticktax_model::trial::Scale;

use super::{FALSE_VERDICTS, POWER};
use crate::statistics::student_quantile;

/// Of fewer successive runs the noise is not known.
const FEWEST_RUNS: usize = 6;
/// More blocks than this nobody runs.
pub(crate) const MOST_BLOCKS: u64 = 10_000;
/// What a rank test needs more of, where values are normal: 1/√(3/π) (Lehmann 1975, 2.4).
const RANKS: f64 = 1.023_3;
/// What few blocks need more of, over the square of their number: a test of few ranks is coarse, and the interval has to leave
/// 0 out as well. Found by trial, of 6 to 40 blocks; the benchmark `trial_benchmark` has how often such an effect is found.
const FEW_BLOCKS: f64 = 8.0;

/// What the machine's own noise lets a trial tell apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detectable {
    /// What noise and effect are in.
    pub scale: Scale,
    /// The standard deviation of a block's difference where nothing differs.
    pub noise: f64,
    /// The effect that is found in four of five trials; `None` where no effect can count, because the blocks
    /// are too few ([`fewest_blocks`]), and where the runs were all alike: of those no noise is known.
    pub effect: Option<f64>,
}

/// What a trial of `blocks` blocks and so many comparisons (metrics × arms beside the first) can tell apart, by
/// successive runs `aa` of one arm; `None` of fewer than six that can be used.
///
/// Four successive runs are a block of the arm beside itself: the difference of the outer and the inner two has no part
/// of a steady drift. Every four are taken, one run further each time. The effect is where the t test of the blocks' differences
/// has a power of 80 % at the level that the smallest of the chances is held to (Holm 1979), and a little more, since
/// ranks are asked for.
pub fn detectable(aa: &[f64], blocks: u64, comparisons: usize) -> Option<Detectable> {
    let values: Vec<f64> = aa.iter().copied().filter(|it| it.is_finite()).collect();
    if values.len() < FEWEST_RUNS {
        return None;
    }
    let scale = scale_of(&values, &[]);
    let of_four: Vec<f64> = values
        .windows(4)
        .map(|runs| {
            let outer = f64::midpoint(runs[0], runs[3]);
            let inner = f64::midpoint(runs[1], runs[2]);
            on(scale, inner, outer)
        })
        .collect();
    let squares: f64 = of_four.iter().map(|it| it * it).sum();
    let noise = (squares / of_four.len() as f64).sqrt();
    let effect = (blocks >= fewest_blocks(comparisons) && noise > 0.0)
        .then(|| effect_of(scale, least_effect(noise, blocks, level(comparisons))));
    Some(Detectable {
        scale,
        noise: effect_of(scale, noise),
        effect,
    })
}

/// Relative where all values of both arms are above 0.
pub(super) fn scale_of(first: &[f64], second: &[f64]) -> Scale {
    let mut all = first.iter().chain(second);
    if all.all(|it| *it > 0.0) {
        Scale::Relative
    } else {
        Scale::Absolute
    }
}

/// What `b` is more than `a`, so that it can be added up: the logarithm of their ratio, or the difference.
pub(super) fn on(scale: Scale, a: f64, b: f64) -> f64 {
    match scale {
        Scale::Relative => (b / a).ln(),
        Scale::Absolute => b - a,
    }
}

/// What such a sum is for people: a share, or as it is.
pub(super) fn effect_of(scale: Scale, sum: f64) -> f64 {
    match scale {
        Scale::Relative => sum.exp_m1(),
        Scale::Absolute => sum,
    }
}

/// The sum that is such an effect: the inverse of [`effect_of`].
pub(super) fn sum_of(scale: Scale, effect: f64) -> f64 {
    match scale {
        Scale::Relative => effect.ln_1p(),
        Scale::Absolute => effect,
    }
}

/// What the smallest chance of so many comparisons is held to.
pub(crate) fn level(comparisons: usize) -> f64 {
    FALSE_VERDICTS / comparisons.max(1) as f64
}

/// The number of blocks from which on a difference can count at all: with fewer, even signs that all agree
/// come by chance too often.
pub fn fewest_blocks(comparisons: usize) -> u64 {
    let mut blocks = 1;
    let mut chance = 1.0;
    while chance > level(comparisons) && blocks < 60 {
        blocks += 1;
        chance /= 2.0;
    }
    blocks
}

/// The effect that is found with the power of 80 %.
fn least_effect(noise: f64, blocks: u64, level: f64) -> f64 {
    let few = blocks as f64;
    RANKS * (1.0 + FEW_BLOCKS / (few * few)) * least_effect_by_t(noise, blocks, level)
}

/// The same where Student's test is asked.
pub(crate) fn least_effect_by_t(noise: f64, blocks: u64, level: f64) -> f64 {
    let freedom = blocks.max(2) as f64 - 1.0;
    let quantiles = student_quantile(1.0 - level / 2.0, freedom) + student_quantile(POWER, freedom);
    quantiles * noise / (blocks as f64).sqrt()
}

/// Half the width of the 95 % interval.
fn margin(noise: f64, blocks: u64) -> f64 {
    let freedom = blocks.max(2) as f64 - 1.0;
    student_quantile(0.975, freedom) * noise / (blocks as f64).sqrt()
}

/// How many blocks would tell, if the effect is what it looks like: to be found as one, or to keep within `limit`,
/// whichever is sooner. All in what can be added up; `None` where it takes more than 10,000.
pub(super) fn blocks_that_tell(
    effect: f64,
    noise: f64,
    limit: f64,
    comparisons: usize,
) -> Option<u64> {
    let (effect, level) = (effect.abs(), level(comparisons));
    let enough = |blocks: u64| {
        least_effect(noise, blocks, level) <= effect || margin(noise, blocks) <= limit - effect
    };
    let (mut low, mut high) = (fewest_blocks(comparisons), MOST_BLOCKS);
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
    use ticktax_model::trial::Scale;

    use super::{blocks_that_tell, detectable, fewest_blocks, margin};

    #[test]
    fn so_few_blocks_tell_nothing() {
        // 2 in 2^6 is 3.1 %; of five comparisons, 1 % is 2 in 2^8.
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
    fn noise_is_that_of_a_block_and_a_drift_is_none() {
        let drifting: Vec<f64> = (0..12).map(|i| 1000.0 + f64::from(i)).collect();
        let told = detectable(&drifting, 10, 1).unwrap();
        assert_eq!(told.scale, Scale::Relative);
        assert!(told.noise < 1e-5, "{told:?}");
        // Every other run takes 2 % more: each four are A B A B, whose outer and inner two are alike.
        let turns: Vec<f64> = (0..12).map(|i| f64::from(100 + 2 * (i % 2))).collect();
        assert!(detectable(&turns, 10, 1).unwrap().noise < 1e-9);
        // A step of 2 % that comes once shows in two of nine.
        let step: Vec<f64> = (0..12).map(|i| if i < 6 { 0.0 } else { 2.0 }).collect();
        let told = detectable(&step, 10, 1).unwrap();
        assert_eq!(told.scale, Scale::Absolute);
        assert!(
            (told.noise - (2.0_f64 / 9.0).sqrt()).abs() < 1e-9,
            "{told:?}"
        );
    }

    #[test]
    fn more_blocks_tell_smaller_effects() {
        let aa = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 10.1, 9.9, 10.1];
        let of = |blocks, comparisons| {
            detectable(&aa, blocks, comparisons)
                .unwrap()
                .effect
                .unwrap()
        };
        assert!(of(10, 1) > 1.9 * of(40, 1));
        assert!(of(10, 5) > of(10, 1));
    }

    #[test]
    fn the_blocks_that_would_tell_are_counted() {
        // (1.96 + 0.84)² · 1.023² · (2 / 1)² = 33, and two more for Student.
        let found = blocks_that_tell(0.01, 0.02, 0.0, 1).unwrap();
        assert!((33..=36).contains(&found), "{found}");
        // To keep within 5 % is sooner there than to find so small an effect.
        let kept = blocks_that_tell(0.001, 0.02, 0.05, 1).unwrap();
        assert_eq!(kept, fewest_blocks(1));
        assert!(margin(0.02, kept) <= 0.049);
        assert_eq!(blocks_that_tell(0.0, 1.0, 0.0, 1), None);
        assert_eq!(blocks_that_tell(0.0, 0.0, 0.05, 1), Some(6));
    }
}
