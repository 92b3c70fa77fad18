//! Judges whether the arms of a comparison differ. Every verb that makes comparisons uses these
//! rules.
//!
//! Each verb has its own test, because the kinds of observation differ: blocks, lists, rounds, or
//! parts of a recording. The test yields an effect with a confidence interval and a p-value. After
//! that, a single rule applies. All p-values in a document are corrected together ([`corrected`]),
//! so that a document about equal arms reports a difference with a probability of at most
//! [`FALSE_VERDICTS`]. A difference counts only if the corrected p-value and the confidence
//! interval agree ([`Evidence::verdict`]).
//!
//! Deviations from a model or from a published figure are not due to chance. They are judged
//! against the largest acceptable deviation ([`Contrast::tolerance`]).

mod student;

use ticktax_model::comparison::{Better, Contrast, Effect, Verdict};

pub use student::{mean, student_chance, student_quantile, variance, welch};

/// Maximum probability that a document reports any difference that is due to chance alone.
pub const FALSE_VERDICTS: f64 = 0.05;

/// The evidence for a difference between two arms.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The difference with its 95 % confidence interval, or `None` if there are too few values or
    /// all of them are equal.
    pub effect: Option<Effect>,
    /// Probability that chance alone causes a difference this large, corrected for all tests in the
    /// document.
    pub chance: Option<f64>,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// Largest effect that still counts as no difference, on the same scale as `effect`.
    pub limit: f64,
}

impl Evidence {
    /// Returns whether the arms differ by more than chance explains.
    pub fn differs(&self) -> bool {
        let certain = self.chance.is_some_and(|chance| chance <= FALSE_VERDICTS);
        certain && self.effect.is_some_and(|effect| !effect.may_be_none())
    }

    /// Returns the difference together with its verdict. For `more_blocks`, see
    /// [`verdict`](Self::verdict).
    pub fn contrast(&self, more_blocks: impl FnOnce() -> Option<u64>) -> Contrast {
        Contrast {
            effect: self.effect,
            chance: self.chance,
            verdict: self.verdict(more_blocks),
        }
    }

    /// Returns the verdict on the difference. `more_blocks` computes how many more blocks would
    /// settle the question. It is called only if the question is open.
    pub fn verdict(&self, more_blocks: impl FnOnce() -> Option<u64>) -> Verdict {
        let Some(effect) = self.effect else {
            return Verdict::CannotTell { more_blocks: None };
        };
        if self.differs() {
            let falls = effect.value < 0.0;
            return match self.better {
                Better::Unknown => Verdict::Differs,
                better if falls == (better == Better::Lower) => Verdict::Better,
                Better::Lower | Better::Higher => Verdict::Worse,
            };
        }
        if effect.bound() <= self.limit {
            let bound = effect.bound();
            return Verdict::NoDifferenceBeyond { bound };
        }
        let more_blocks = more_blocks();
        Verdict::CannotTell { more_blocks }
    }
}

/// Corrects p-values for multiple testing (Holm 1979), so that even the smallest one can be taken
/// at face value. `None` entries do not count as tests. `tests` is the number of tests if that is
/// larger than the number of entries. For example, the entries may include only the pairs with the
/// best arm.
pub fn corrected(chances: &[Option<f64>], tests: usize) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = chances
        .iter()
        .enumerate()
        .filter_map(|(place, chance)| Some((place, (*chance)?)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let tests = tests.max(order.len());
    let mut corrected = vec![None; chances.len()];
    let mut least = 0.0_f64;
    for (before, (place, chance)) in order.iter().enumerate() {
        least = least.max(chance * (tests - before) as f64).min(1.0);
        corrected[*place] = Some(least);
    }
    corrected
}

/// Returns the significance level that the smallest of `tests` p-values must reach.
pub fn level(tests: usize) -> f64 {
    FALSE_VERDICTS / tests.max(1) as f64
}

/// Returns the 95 % confidence interval and the p-value of `value`, the difference between the
/// means of two lists (Welch 1947). Each list needs at least two values.
pub fn difference(value: f64, first: &[f64], second: &[f64]) -> (Effect, f64) {
    let moments = |values: &[f64]| (variance(values), values.len());
    let (error, freedom) = welch(moments(first), moments(second));
    let margin = error * student_quantile(0.975, freedom);
    (
        Effect::within(value, margin),
        chance_of(value, error, freedom),
    )
}

/// Returns the two-sided p-value of the difference `value`, whose standard error is `error`. If the
/// values have no spread at all, any difference is certain.
pub fn chance_of(value: f64, error: f64, freedom: f64) -> f64 {
    if value.abs() > 0.0 {
        student_chance(value / error, freedom)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::{Better, Effect, Verdict};

    use super::{Evidence, corrected, difference};

    #[test]
    fn holm_corrects_a_family_of_tests() {
        let near = |corrected: &[Option<f64>], wanted: &[Option<f64>]| {
            assert_eq!(corrected.len(), wanted.len());
            for (corrected, wanted) in corrected.iter().zip(wanted) {
                assert_eq!(corrected.is_some(), wanted.is_some());
                let off = corrected.unwrap_or(0.0) - wanted.unwrap_or(0.0);
                assert!(off.abs() < 1e-12, "{corrected:?}");
            }
        };
        let all = [Some(0.01), None, Some(0.04), Some(0.03)];
        near(
            &corrected(&all, 0),
            &[Some(0.03), None, Some(0.06), Some(0.06)],
        );
        near(
            &corrected(&all, 10),
            &[Some(0.1), None, Some(0.32), Some(0.27)],
        );
        near(
            &corrected(&[Some(0.9), Some(0.8)], 2),
            &[Some(1.0), Some(1.0)],
        );
    }

    #[test]
    fn a_difference_needs_a_small_chance_and_an_interval_without_zero() {
        let evidence = |chance, (low, high), better| Evidence {
            effect: Some(Effect {
                value: f64::midpoint(low, high),
                low,
                high,
            }),
            chance: Some(chance),
            better,
            limit: 0.05,
        };
        let verdict = |chance, ends, better| evidence(chance, ends, better).verdict(|| Some(7));
        let open = Verdict::CannotTell {
            more_blocks: Some(7),
        };
        for (chance, ends, better, wanted) in [
            (0.04, (0.1, 0.2), Better::Lower, Verdict::Worse),
            (0.04, (-0.2, -0.1), Better::Lower, Verdict::Better),
            (0.04, (0.1, 0.2), Better::Higher, Verdict::Better),
            (0.04, (0.1, 0.2), Better::Unknown, Verdict::Differs),
            (0.06, (0.1, 0.2), Better::Lower, open),
            (0.04, (-0.1, 0.2), Better::Lower, open),
            (
                0.5,
                (-0.03, 0.04),
                Better::Lower,
                Verdict::NoDifferenceBeyond { bound: 0.04 },
            ),
        ] {
            assert_eq!(verdict(chance, ends, better), wanted, "{chance} {ends:?}");
        }
        let unknown = Evidence {
            effect: None,
            ..evidence(0.0, (1.0, 2.0), Better::Lower)
        };
        assert_eq!(
            unknown.verdict(|| Some(7)),
            Verdict::CannotTell { more_blocks: None }
        );
    }

    #[test]
    fn constant_lists_differ_for_certain_or_not_at_all() {
        let (effect, chance) = difference(1.0, &[1.0; 5], &[2.0; 5]);
        assert_eq!(effect, Effect::within(1.0, 0.0));
        assert!(chance < 1e-12, "{chance}");
        assert!((difference(0.0, &[1.0; 5], &[1.0; 5]).1 - 1.0).abs() < 1e-12);
        // The standard error is √⅔, and Student's t with 4 degrees of freedom is 2.776 at 5 %.
        let (effect, chance) = difference(2.266_6, &[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(
            (chance - 0.05).abs() < 1e-3 && effect.low.abs() < 1e-3,
            "{effect:?} {chance}"
        );
    }
}
