//! What speaks against a verdict.
//!
//! Checks look for trouble of which the design keeps the verdict free, or that it cannot help: a trend, an order
//! that matters, sorted values. Each of these is told at 1 %, so that a page of ten has one by chance in ten;
//! commands that fail in one arm are told of at 5 %, since what is left may not be alike.

use ticktax_model::trial::{ArmSuccess, Check, Scale};

use super::blocks::Blocks;
use super::detectable::{effect_of, on};
use crate::statistics::{line, mann_whitney, mean, sorted_by_chance, spearman};

/// What chance does more often than this is not told.
const ODD: f64 = 0.01;
/// Arms whose commands fail so differently by chance are told of.
const ODD_FAILURES: f64 = 0.05;
/// Those that the values of both arms tell.
pub(super) fn of_blocks(blocks: &Blocks, scale: Scale) -> Vec<Check> {
    let (first, second) = (&blocks.first, &blocks.second);
    let mut checks = Vec::new();
    if blocks.missing > 0 {
        let runs = blocks.missing;
        checks.push(Check::Missing { runs });
    }
    if let Some(same) = of_sameness(first, second) {
        checks.push(same);
        return checks;
    }
    checks.extend(drift(blocks, scale));
    checks.extend(order(blocks, scale));
    checks.extend(of_lists(first, second));
    checks
}

/// Whether all values are one, or both lists are the same.
pub(super) fn of_sameness(first: &[f64], second: &[f64]) -> Option<Check> {
    let value = *first.first()?;
    let mut all = first.iter().chain(second);
    let is_same = |a: f64, b: f64| a.total_cmp(&b).is_eq();
    if all.all(|it| is_same(*it, value)) {
        return (first.len() > 1 && !second.is_empty()).then_some(Check::Constant { value });
    }
    let mut pairs = first.iter().zip(second);
    let identical = first.len() == second.len() && pairs.all(|(a, b)| is_same(*a, *b));
    identical.then_some(Check::Identical)
}

/// What two lists tell, paired or not: whether they come sorted.
pub(super) fn of_lists(first: &[f64], second: &[f64]) -> Option<Check> {
    // Chance sorts a list either way.
    let rare = |values: &[f64]| sorted_by_chance(values).filter(|chance| 2.0 * chance <= ODD);
    let (a, b) = (rare(first), rare(second));
    (a.is_some() || b.is_some()).then(|| Check::Sorted {
        first: a.is_some(),
        second: b.is_some(),
        chance: a.unwrap_or(1.0) * b.unwrap_or(1.0),
    })
}

/// A trend of the blocks' level, both arms together.
fn drift(blocks: &Blocks, scale: Scale) -> Option<Check> {
    let of_both = blocks
        .pairs
        .iter()
        .map(|it| on_level(scale, it.first, it.second));
    let levels: Vec<f64> = of_both.collect();
    let places: Vec<f64> = (0..levels.len()).map(|place| place as f64).collect();
    let (_, chance) = spearman(&places, &levels)?;
    let points: Vec<(f64, f64)> = places.iter().copied().zip(levels).collect();
    let (_, slope) = line(&points);
    let moved = effect_of(scale, slope * (points.len() - 1) as f64);
    (chance <= ODD).then_some(Check::Drift {
        change: moved,
        chance,
    })
}

/// The level of a block, so that a difference of two is what adds up.
fn on_level(scale: Scale, first: f64, second: f64) -> f64 {
    match scale {
        Scale::Relative => f64::midpoint(first.ln(), second.ln()),
        Scale::Absolute => f64::midpoint(first, second),
    }
}

/// Whether it matters which arm leads a block.
fn order(blocks: &Blocks, scale: Scale) -> Option<Check> {
    let of = |led: bool| -> Vec<f64> {
        let pairs = blocks.pairs.iter().filter(|it| it.second_led == led);
        pairs.map(|it| on(scale, it.first, it.second)).collect()
    };
    let (first_led, second_led) = (of(false), of(true));
    let chance = mann_whitney(&first_led, &second_led);
    let moved = effect_of(scale, mean(&second_led) - mean(&first_led));
    let both = !first_led.is_empty() && !second_led.is_empty();
    (both && chance <= ODD).then_some(Check::Order {
        change: moved,
        chance,
    })
}

/// What the arms' successes tell.
pub(super) fn of_successes(successes: &[ArmSuccess], arm: usize) -> Option<Check> {
    let (first, second) = (successes.first()?, successes.get(arm)?);
    let chance = second.chance.filter(|chance| *chance <= ODD_FAILURES)?;
    let failed = |it: &ArmSuccess| (it.runs - it.succeeded) as f64 / it.runs.max(1) as f64;
    Some(Check::Failures {
        first_share: failed(first),
        second_share: failed(second),
        chance,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::trial::{Check, Scale};

    use super::super::blocks::{Blocks, Pair};
    use super::{drift, of_lists, of_sameness, order};

    fn blocks(of: impl Fn(usize) -> (f64, f64, bool)) -> Blocks {
        let pairs = (0..12).map(of).map(|(first, second, second_led)| Pair {
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
    fn a_trend_is_told_with_its_size() {
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
    fn it_is_told_where_the_order_matters() {
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
    fn what_is_the_same_is_told() {
        assert_eq!(
            of_sameness(&[2.0; 3], &[2.0; 4]),
            Some(Check::Constant { value: 2.0 })
        );
        assert_eq!(
            of_sameness(&[1.0, 2.0], &[1.0, 2.0]),
            Some(Check::Identical)
        );
        assert_eq!(of_sameness(&[1.0, 2.0], &[2.0, 1.0]), None);
        assert_eq!(of_sameness(&[], &[]), None);
        assert_eq!(of_sameness(&[1.0, 1.0], &[]), None);
        let told = of_lists(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3.0, 1.0, 2.0]);
        let Some(Check::Sorted {
            first: true,
            second: false,
            chance,
        }) = told
        else {
            panic!("{told:?}");
        };
        assert!((chance - 1.0 / 720.0).abs() < 1e-12);
        // Two of 120 orders are more than one in a hundred.
        assert_eq!(of_lists(&[1.0, 2.0, 3.0, 4.0, 5.0], &[]), None);
    }
}
