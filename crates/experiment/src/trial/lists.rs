//! Two lists of numbers that nothing pairs.

use ticktax_model::trial::{Better, Check, Comparison, Effect, Scale, Verdict};

use super::FALSE_VERDICTS;
use super::blocks::figures;
use super::checks;
use super::detectable::{effect_of, on, scale_of};
use super::judge::Draft;
use crate::statistics::{mann_whitney, mean, means_interval, variance};

/// The number of values of each list from which on a difference can count at all: of two of 4, one order of 70 has
/// each list on one side.
pub fn fewest_values() -> u64 {
    let mut values = 1_u64;
    let mut ways = 2.0;
    while 2.0 / ways > FALSE_VERDICTS {
        values += 1;
        ways *= (4 * values - 2) as f64 / values as f64;
    }
    values
}

/// The second list beside the first. What is relative is the ratio of the means less one.
///
/// Nothing is known of what happened between the runs of the first and those of the second: a machine that
/// changed meanwhile is in the effect. Where it matters, a trial interleaves them.
pub fn compare_lists(first: &[f64], second: &[f64], better: Better, difference: f64) -> Comparison {
    let scale = scale_of(first, second);
    let (ma, mb) = (mean(first), mean(second));
    let relative = scale == Scale::Relative;
    let centre = if first.is_empty() || second.is_empty() {
        0.0
    } else {
        on(scale, ma, mb)
    };
    let effect = means_interval(first, second, relative).map(|(low, high)| Effect {
        value: effect_of(scale, centre),
        low: effect_of(scale, low),
        high: effect_of(scale, high),
    });
    let same = checks::of_sameness(first, second);
    let mut found: Vec<Check> = Vec::new();
    let have = first.len().min(second.len()) as u64;
    let need = fewest_values();
    if have < need {
        found.push(Check::TooFew { have, need });
    }
    let constant = matches!(same, Some(Check::Constant { .. }));
    found.extend(same);
    if !constant {
        found.extend(checks::of_lists(first, second));
    }
    let as_shares = |variance: f64, mean: f64| {
        if relative {
            variance / (mean * mean)
        } else {
            variance
        }
    };
    let spread = as_shares(variance(first), ma) + as_shares(variance(second), mb);
    let chance = (!constant && have > 0).then(|| mann_whitney(first, second));
    let mut draft = Draft {
        better,
        centre,
        spread: spread.sqrt(),
        comparison: Comparison {
            metric: "value".to_owned(),
            arm: 1,
            first: figures(first),
            second: figures(second),
            blocks: None,
            scale,
            effect,
            chance,
            chance_corrected: chance,
            noise: None,
            detectable: None,
            predicted: None,
            verdict: Verdict::CannotTell { more_blocks: None },
            checks: found,
        },
    };
    draft.conclude(difference, 1);
    draft.comparison
}

#[cfg(test)]
mod tests {
    use ticktax_model::trial::{Better, Check, Verdict};

    use super::{compare_lists, fewest_values};

    const STOCK: [f64; 6] = [61.817, 61.871, 61.993, 62.015, 62.049, 62.077];
    const PATCHED: [f64; 6] = [60.177, 60.313, 60.331, 60.349, 60.462, 60.792];

    /// The builds of the case `slice-vs-cache`.
    #[test]
    fn a_published_comparison_comes_out_as_published() {
        let told = compare_lists(&STOCK, &PATCHED, Better::Lower, 0.05);
        let effect = told.effect.unwrap();
        assert!((effect.value + 0.0253).abs() < 5e-5, "{effect:?}");
        assert!(effect.low < -0.0253 && effect.high > -0.0253, "{effect:?}");
        assert!(effect.low > -0.035 && effect.high < -0.018, "{effect:?}");
        assert!((told.chance.unwrap() - 2.0 / 924.0).abs() < 1e-12);
        assert_eq!(told.verdict, Verdict::Better);
        let [
            Check::Sorted {
                first: true,
                second: true,
                chance,
            },
        ] = &*told.checks
        else {
            panic!("{:?}", told.checks);
        };
        assert!((chance - 1.0 / 720.0 / 720.0).abs() < 1e-12);
        let blind = compare_lists(&STOCK, &PATCHED, Better::Unknown, 0.05);
        assert_eq!(blind.verdict, Verdict::Differs);
        let back = compare_lists(&PATCHED, &STOCK, Better::Lower, 0.05);
        assert_eq!(back.verdict, Verdict::Worse);
    }

    #[test]
    fn few_equal_and_missing_values_are_no_difference_that_counts() {
        // Two of 6 choices, of 20: 0.1; of 70: 0.029.
        assert_eq!(fewest_values(), 4);
        let few = compare_lists(&STOCK[..3], &PATCHED[..3], Better::Lower, 0.05);
        assert!(matches!(few.checks[0], Check::TooFew { have: 3, need: 4 }));
        assert!(!few.verdict.differs(), "{:?}", few.verdict);
        let same = compare_lists(&STOCK, &STOCK, Better::Lower, 0.05);
        assert!(same.checks.contains(&Check::Identical));
        assert!(matches!(same.verdict, Verdict::NoDifferenceBeyond { bound } if bound < 0.01));
        let constant = compare_lists(&[0.0; 6], &[0.0; 6], Better::Lower, 0.05);
        assert_eq!(constant.checks, [Check::Constant { value: 0.0 }]);
        assert_eq!(constant.verdict, Verdict::CannotTell { more_blocks: None });
        let none = compare_lists(&[], &STOCK, Better::Lower, 0.05);
        assert_eq!((none.first, none.chance, none.effect), (None, None, None));
        let one = compare_lists(&[1.0], &[2.0], Better::Lower, 0.05);
        assert_eq!(one.verdict, Verdict::CannotTell { more_blocks: None });
    }

    #[test]
    fn what_could_not_be_told_says_how_many_would() {
        let a = [10.0, 14.0, 9.0, 12.0, 11.0, 13.0];
        let b = [10.5, 13.0, 9.5, 13.0, 11.5, 13.5];
        let told = compare_lists(&a, &b, Better::Lower, 0.05);
        let Verdict::CannotTell {
            more_blocks: Some(more),
        } = told.verdict
        else {
            panic!("{:?}", told.verdict);
        };
        // (2.8 · 0.24 / 0.029)² = 540 to find 2.9 %, and somewhat fewer to keep it within 5 %.
        assert!((300..600).contains(&more), "{more}");
        // Values around 0 have a difference, no ratio.
        let around = compare_lists(
            &[-1.0, 1.0, -2.0, 2.0],
            &[0.5, -0.5, 1.5, 2.5],
            Better::Unknown,
            0.05,
        );
        assert!((around.effect.unwrap().value - 1.0).abs() < 1e-12);
    }
}
