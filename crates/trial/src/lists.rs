//! Compares two unpaired lists of numbers.

use ticktax_model::comparison::{ArmEffect, Better, Check, Contrast, Effect, Scale};

use super::checks;
use super::judge::Draft;
use ticktax_analysis::judge::FALSE_VERDICTS;
use ticktax_experiment::detectable::{additive_difference, effect_of, scale_of};
use ticktax_experiment::statistics::{mann_whitney, mean, means_interval, variance};

/// Returns how many values each list must have for a difference to be significant. It is four: of
/// the 70 ways to order two lists of four, 2 separate the lists completely, which is 2.9 %.
pub fn fewest_values() -> u64 {
    let mut values = 1_u64;
    let mut ways = 2.0;
    while 2.0 / ways > FALSE_VERDICTS {
        values += 1;
        ways *= (4 * values - 2) as f64 / values as f64;
    }
    values
}

/// Compares the second list with the first. A relative effect is the ratio of the second mean to
/// the first, minus 1.
///
/// The lists were not interleaved, so if the machine changed between them, the change is part of
/// the effect. Where that matters, run a trial instead.
pub fn compare_lists(first: &[f64], second: &[f64], better: Better, difference: f64) -> ArmEffect {
    let scale = scale_of(first, second);
    let (ma, mb) = (mean(first), mean(second));
    let relative = scale == Scale::Relative;
    let centre = if first.is_empty() || second.is_empty() {
        0.0
    } else {
        additive_difference(scale, ma, mb)
    };
    let effect = means_interval(first, second, relative).map(|(low, high)| Effect {
        value: effect_of(scale, centre),
        low: effect_of(scale, low),
        high: effect_of(scale, high),
    });
    let same = checks::sameness(first, second);
    let mut found: Vec<Check> = Vec::new();
    let have = first.len().min(second.len()) as u64;
    let need = fewest_values();
    if have < need {
        found.push(Check::TooFew { have, need });
    }
    let constant = matches!(same, Some(Check::Constant { .. }));
    found.extend(same);
    if !constant {
        found.extend(checks::sorted_lists(first, second));
    }
    let relative_variance = |variance: f64, mean: f64| {
        if relative {
            variance / (mean * mean)
        } else {
            variance
        }
    };
    let spread = relative_variance(variance(first), ma) + relative_variance(variance(second), mb);
    let chance = (!constant && have > 0).then(|| mann_whitney(first, second));
    let mut draft = Draft {
        better,
        mean: if first.is_empty() { 0.0 } else { ma },
        have,
        centre,
        spread: spread.sqrt(),
        effect: ArmEffect {
            arm: 1,
            scale,
            contrast: Contrast {
                effect,
                chance,
                ..Contrast::default()
            },
            chance,
            checks: found,
            ..ArmEffect::default()
        },
    };
    draft.conclude(difference, 1);
    draft.effect
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::{Better, Check, Verdict};

    use super::{compare_lists, fewest_values};

    const STOCK: [f64; 6] = [61.817, 61.871, 61.993, 62.015, 62.049, 62.077];
    const PATCHED: [f64; 6] = [60.177, 60.313, 60.331, 60.349, 60.462, 60.792];

    /// The values are build times from the case `slice-vs-cache`.
    #[test]
    fn a_published_comparison_comes_out_as_published() {
        let comparison = compare_lists(&STOCK, &PATCHED, Better::Lower, 0.05);
        let effect = comparison.contrast.effect.unwrap();
        assert!((effect.value + 0.0253).abs() < 5e-5, "{effect:?}");
        assert!(effect.low < -0.0253 && effect.high > -0.0253, "{effect:?}");
        assert!(effect.low > -0.035 && effect.high < -0.018, "{effect:?}");
        assert!((comparison.chance.unwrap() - 2.0 / 924.0).abs() < 1e-12);
        assert_eq!(comparison.contrast.verdict, Verdict::Better);
        let [
            Check::Sorted {
                first: true,
                second: true,
                chance,
            },
        ] = &*comparison.checks
        else {
            panic!("{:?}", comparison.checks);
        };
        assert!((chance - 1.0 / 720.0 / 720.0).abs() < 1e-12);
        let blind = compare_lists(&STOCK, &PATCHED, Better::Unknown, 0.05);
        assert_eq!(blind.contrast.verdict, Verdict::Differs);
        let back = compare_lists(&PATCHED, &STOCK, Better::Lower, 0.05);
        assert_eq!(back.contrast.verdict, Verdict::Worse);
    }

    #[test]
    fn few_equal_or_missing_values_never_differ() {
        // Two lists of three values can be ordered in 20 ways, and 2 of these separate the lists,
        // which is 10 %. With four values each, it is 2 of 70, which is 2.9 %.
        assert_eq!(fewest_values(), 4);
        let few = compare_lists(&STOCK[..3], &PATCHED[..3], Better::Lower, 0.05);
        assert!(matches!(few.checks[0], Check::TooFew { have: 3, need: 4 }));
        assert!(
            !few.contrast.verdict.differs(),
            "{:?}",
            few.contrast.verdict
        );
        let same = compare_lists(&STOCK, &STOCK, Better::Lower, 0.05);
        assert!(same.checks.contains(&Check::Identical));
        assert!(
            matches!(same.contrast.verdict, Verdict::NoDifferenceBeyond { bound } if bound < 0.01)
        );
        let constant = compare_lists(&[0.0; 6], &[0.0; 6], Better::Lower, 0.05);
        assert_eq!(constant.checks, [Check::Constant { value: 0.0 }]);
        assert_eq!(
            constant.contrast.verdict,
            Verdict::CannotTell { more_blocks: None }
        );
        let none = compare_lists(&[], &STOCK, Better::Lower, 0.05);
        assert_eq!((none.chance, none.contrast.effect), (None, None));
        let one = compare_lists(&[1.0], &[2.0], Better::Lower, 0.05);
        assert_eq!(
            one.contrast.verdict,
            Verdict::CannotTell { more_blocks: None }
        );
    }

    #[test]
    fn an_open_verdict_says_how_many_more_values_it_needs() {
        let a = [10.0, 14.0, 9.0, 12.0, 11.0, 13.0];
        let b = [10.5, 13.0, 9.5, 13.0, 11.5, 13.5];
        let comparison = compare_lists(&a, &b, Better::Lower, 0.05);
        let Verdict::CannotTell {
            more_blocks: Some(more),
        } = comparison.contrast.verdict
        else {
            panic!("{:?}", comparison.contrast.verdict);
        };
        // It takes (2.8 · 0.24 / 0.029)² = 540 values to find an effect of 2.9 %, and slightly
        // fewer to show that the effect is within 5 %.
        assert!((300..600).contains(&more), "{more}");
        // Near 0, the ratio of two values is meaningless, but their difference is not.
        let around = compare_lists(
            &[-1.0, 1.0, -2.0, 2.0],
            &[0.5, -0.5, 1.5, 2.5],
            Better::Unknown,
            0.05,
        );
        assert!((around.contrast.effect.unwrap().value - 1.0).abs() < 1e-12);
    }
}
