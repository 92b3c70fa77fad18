//! Checks for reasons to doubt a verdict.
//!
//! Most checks report a problem that the design compensates for or cannot prevent: a trend, an
//! effect of the order of the runs, or sorted values. A pattern is reported if the probability that
//! it occurs by chance is at most 1 %. With ten such checks, about one report in ten contains a
//! chance pattern. For differing failure rates, the threshold is 5 %, because the remaining runs
//! might then not be comparable.

use ticktax_model::comparison::{Arm, Check, Scale};

use super::blocks::Blocks;
use ticktax_experiment::detectable::{additive_difference, effect_of};
use ticktax_experiment::statistics::{
    fisher_exact, line, mann_whitney, mean, sorted_by_chance, spearman,
};

/// A pattern is reported if it would occur by chance with at most this probability.
const ODD: f64 = 0.01;
/// A difference between the arms' failure rates is reported if it would occur by chance with at
/// most this probability.
const ODD_FAILURES: f64 = 0.05;
/// Checks the values of both arms.
pub(super) fn block_checks(blocks: &Blocks, scale: Scale) -> Vec<Check> {
    let (first, second) = (&blocks.first, &blocks.second);
    let mut checks = Vec::new();
    if blocks.missing > 0 {
        let runs = blocks.missing;
        checks.push(Check::Missing { runs });
    }
    if let Some(same) = sameness(first, second) {
        checks.push(same);
        return checks;
    }
    checks.extend(drift(blocks, scale));
    checks.extend(order(blocks, scale));
    checks.extend(sorted_lists(first, second));
    checks
}

/// Reports it if all values are equal, or if both arms have identical lists.
pub(super) fn sameness(first: &[f64], second: &[f64]) -> Option<Check> {
    let value = *first.first()?;
    let mut all = first.iter().chain(second);
    let is_same = |a: f64, b: f64| a.total_cmp(&b).is_eq();
    if all.all(|other| is_same(*other, value)) {
        return (first.len() > 1 && !second.is_empty()).then_some(Check::Constant { value });
    }
    let mut pairs = first.iter().zip(second);
    let identical = first.len() == second.len() && pairs.all(|(a, b)| is_same(*a, *b));
    identical.then_some(Check::Identical)
}

/// Reports a list that is already sorted, whether or not the lists are paired.
pub(super) fn sorted_lists(first: &[f64], second: &[f64]) -> Option<Check> {
    // A list that is sorted in either direction counts, which doubles the probability.
    let rare = |values: &[f64]| sorted_by_chance(values).filter(|chance| 2.0 * chance <= ODD);
    let (a, b) = (rare(first), rare(second));
    (a.is_some() || b.is_some()).then(|| Check::Sorted {
        first: a.is_some(),
        second: b.is_some(),
        chance: a.unwrap_or(1.0) * b.unwrap_or(1.0),
    })
}

/// Reports a trend in the level of the blocks, if there is one. A block's level is the mean of both
/// arms.
fn drift(blocks: &Blocks, scale: Scale) -> Option<Check> {
    let levels = blocks
        .pairs
        .iter()
        .map(|pair| on_level(scale, pair.first, pair.second));
    let levels: Vec<f64> = levels.collect();
    let places: Vec<f64> = (0..levels.len()).map(|place| place as f64).collect();
    let (_, chance) = spearman(&places, &levels)?;
    let points: Vec<(f64, f64)> = places.iter().copied().zip(levels).collect();
    let (_, slope) = line(&points);
    let change = effect_of(scale, slope * (points.len() - 1) as f64);
    (chance <= ODD).then_some(Check::Drift { change, chance })
}

/// Returns a block's level on a scale where differences are additive.
fn on_level(scale: Scale, first: f64, second: f64) -> f64 {
    match scale {
        Scale::Relative => f64::midpoint(first.ln(), second.ln()),
        Scale::Absolute => f64::midpoint(first, second),
    }
}

/// Reports it if an arm gains or loses by running first in a block.
fn order(blocks: &Blocks, scale: Scale) -> Option<Check> {
    let differences = |led: bool| -> Vec<f64> {
        let pairs = blocks.pairs.iter().filter(|pair| pair.second_led == led);
        pairs
            .map(|pair| additive_difference(scale, pair.first, pair.second))
            .collect()
    };
    let (first_led, second_led) = (differences(false), differences(true));
    let chance = mann_whitney(&first_led, &second_led);
    let change = effect_of(scale, mean(&second_led) - mean(&first_led));
    let has_both_orders = !first_led.is_empty() && !second_led.is_empty();
    (has_both_orders && chance <= ODD).then_some(Check::Order { change, chance })
}

/// Reports it if the two arms' failure rates differ significantly.
pub(super) fn failure_difference(arms: &[Arm], arm: usize) -> Option<Check> {
    let (first, second) = (arms.first()?, arms.get(arm)?);
    let failure_share = |arm: &Arm| arm.failed as f64 / arm.runs.max(1) as f64;
    let counts = |arm: &Arm| (arm.runs - arm.failed, arm.runs);
    let chance = fisher_exact(counts(first), counts(second));
    (first.failed + second.failed > 0 && chance <= ODD_FAILURES).then(|| Check::Failures {
        first_share: failure_share(first),
        second_share: failure_share(second),
        chance,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::{Check, Scale};

    use super::super::blocks::{Blocks, Pair};
    use super::{drift, order, sameness, sorted_lists};

    fn blocks(values: impl Fn(usize) -> (f64, f64, bool)) -> Blocks {
        let pairs = (0..12).map(values).map(|(first, second, second_led)| Pair {
            first,
            second,
            second_led,
        });
        Blocks {
            pairs: pairs.collect(),
            ..Blocks::default()
        }
    }

    #[test]
    fn a_trend_is_reported_with_its_size() {
        let rising = blocks(|i| (1.01_f64.powf(i as f64), 1.01_f64.powf(i as f64), false));
        let Some(Check::Drift { change, chance }) = drift(&rising, Scale::Relative) else {
            panic!("a trend");
        };
        assert!(
            (change - (1.01_f64.powi(11) - 1.0)).abs() < 1e-9,
            "{change}"
        );
        assert!(chance < 1e-4);
        let to_and_fro = blocks(|i| ((i * 5 % 12) as f64, 1.0, false));
        assert_eq!(drift(&to_and_fro, Scale::Absolute), None);
    }

    #[test]
    fn an_effect_of_the_order_is_reported() {
        let led = blocks(|i| {
            (
                0.01 * i as f64,
                if i % 2 == 0 { 3.0 } else { 1.0 },
                i % 2 == 0,
            )
        });
        let Some(Check::Order { change, chance }) = order(&led, Scale::Absolute) else {
            panic!("the order matters");
        };
        assert!((change - 2.01).abs() < 1e-9, "{change}");
        assert!(chance < 0.01);
        assert_eq!(
            order(&blocks(|i| (1.0, i as f64, true)), Scale::Absolute),
            None
        );
        assert_eq!(
            order(
                &blocks(|i| (1.0, (i / 2) as f64, i % 2 == 0)),
                Scale::Absolute
            ),
            None
        );
    }

    #[test]
    fn equal_values_and_sorted_lists_are_reported() {
        assert_eq!(
            sameness(&[2.0; 3], &[2.0; 4]),
            Some(Check::Constant { value: 2.0 })
        );
        assert_eq!(sameness(&[1.0, 2.0], &[1.0, 2.0]), Some(Check::Identical));
        assert_eq!(sameness(&[1.0, 2.0], &[2.0, 1.0]), None);
        assert_eq!(sameness(&[], &[]), None);
        assert_eq!(sameness(&[1.0, 1.0], &[]), None);
        let sorted = sorted_lists(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3.0, 1.0, 2.0]);
        let Some(Check::Sorted {
            first: true,
            second: false,
            chance,
        }) = sorted
        else {
            panic!("{sorted:?}");
        };
        assert!((chance - 1.0 / 720.0).abs() < 1e-12);
        // Five values can be ordered in 120 ways. In 2 of these they are sorted, which is more than
        // 1 %, so sorted lists of five must not be reported.
        assert_eq!(sorted_lists(&[1.0, 2.0, 3.0, 4.0, 5.0], &[]), None);
    }
}
