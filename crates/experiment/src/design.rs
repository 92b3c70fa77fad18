//! Determines which effects an experiment can estimate if it covers all combinations of its
//! factors' values.
//!
//! Each combination of values is an arm. The effect of a value is a comparison of arms. An
//! interaction is the additional effect of a value when it is combined with a value of another
//! factor. Arms with the same settings in effect count as one arm, so some comparisons vanish, and
//! some are equal to a combination of others. This module needs to know which arms are the same,
//! but not what the factors mean.
//!
//! ```
//! use ticktax_experiment::design::{Factorial, same};
//!
//! // Two switches. The second does nothing while the first is off.
//! let factorial = Factorial::new(vec![2, 2]);
//! let effects = |arm: &Vec<usize>| (arm[0], arm[0] * arm[1]);
//! let check = factorial.check(&same(&factorial.arms(), effects)).0;
//! assert_eq!((check.arms, check.different, check.rank), (4, 3, 2));
//! let off = check.idle[0].while_at.unwrap();
//! assert_eq!((check.idle[0].factor, off.factor, off.value), (1, 0, 0));
//! ```

use ticktax_model::net_experiment::{Alias, AliasPart, DesignCheck, IdleFactor, Term};

use crate::statistics::dependencies;
use crate::vary::nth;

/// A design that covers every combination of the factors' values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factorial {
    levels: Vec<usize>,
}

/// An effect that can be estimated, with the weight of each arm in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The values whose effect this is: one term for a main effect, and two for an interaction.
    pub terms: Vec<Term>,
    /// Weight of each arm, in the order of [`Factorial::arms`].
    pub weights: Vec<f64>,
}

impl Factorial {
    /// Creates a design, given the number of values of each factor.
    pub fn new(levels: Vec<usize>) -> Self {
        Self { levels }
    }

    /// Returns every combination of value indices, one index per factor, starting with all zeros.
    /// The last factor changes fastest.
    pub fn arms(&self) -> Vec<Vec<usize>> {
        let count = self.levels.iter().product();
        (0..count).map(|number| nth(&self.levels, number)).collect()
    }

    /// Returns all main effects, followed by all interactions between two factors.
    pub fn effects(&self) -> Vec<Vec<Term>> {
        let terms_of = |factor: usize| {
            let values = 1..self.levels[factor];
            values.map(move |value| Term { factor, value })
        };
        let factors = 0..self.levels.len();
        let mut all: Vec<Vec<Term>> = factors
            .clone()
            .flat_map(terms_of)
            .map(|term| vec![term])
            .collect();
        for first in factors.clone() {
            for second in first + 1..self.levels.len() {
                let pairs = terms_of(first).flat_map(|a| terms_of(second).map(move |b| vec![a, b]));
                all.extend(pairs);
            }
        }
        all
    }

    /// Returns the weight of each arm in the effect of `terms`.
    ///
    /// A main effect compares the arms that have the term's value with those that have the first
    /// value of its factor, averaged over all other factors. An interaction is the effect of the
    /// first term when the second term applies, minus its effect when the second term does not
    /// apply.
    pub fn weights(&self, terms: &[Term]) -> Vec<f64> {
        let is_of = |factor: usize| terms.iter().any(|term| term.factor == factor);
        let others = self.levels.iter().enumerate();
        let others = others.filter(|(factor, _)| !is_of(*factor));
        let others: usize = others.map(|(_, levels)| levels).product();
        let weight = |arm: Vec<usize>| {
            let signs = terms.iter().map(|term| match arm[term.factor] {
                0 => -1.0,
                value if value == term.value => 1.0,
                _ => 0.0,
            });
            signs.product::<f64>() / others as f64
        };
        self.arms().into_iter().map(weight).collect()
    }

    /// Determines which effects can be estimated if some arms are the same.
    ///
    /// `same[i]` is the index of the first arm that is equal to arm `i`. Also returns the
    /// independent comparisons, in which equal arms share their weight.
    pub fn check(&self, same: &[usize]) -> (DesignCheck, Vec<Comparison>) {
        let effects = self.effects();
        let arms = same.len();
        let merged: Vec<Vec<f64>> = effects
            .iter()
            .map(|terms| merge(&self.weights(terms), same))
            .collect();
        let dependent = dependencies(&merged, &vec![1e-9; merged.len()]);
        let mut check = DesignCheck {
            arms,
            different: same
                .iter()
                .enumerate()
                .filter(|(at, first)| at == *first)
                .count(),
            effects: effects.len(),
            idle: self.idle(same),
            ..DesignCheck::default()
        };
        let mut comparisons = Vec::new();
        for ((terms, merged), dependence) in effects.iter().zip(merged).zip(dependent) {
            match dependence {
                None => comparisons.push(Comparison {
                    terms: terms.clone(),
                    weights: share(&merged, same),
                }),
                Some(of) if of.is_empty() => check.nothing.push(terms.clone()),
                Some(of) => check.aliases.push(Alias {
                    terms: terms.clone(),
                    is: of
                        .into_iter()
                        .map(|(at, value)| AliasPart {
                            value,
                            terms: effects[at].clone(),
                        })
                        .collect(),
                }),
            }
        }
        check.rank = comparisons.len();
        (check, comparisons)
    }

    /// Lists the factors that have no effect, either in all arms or while another factor has a
    /// certain value.
    fn idle(&self, same: &[usize]) -> Vec<IdleFactor> {
        let arms = self.arms();
        let is_idle = |factor: usize, while_at: Option<Term>| {
            let mut there = arms
                .iter()
                .enumerate()
                .filter(|(_, arm)| while_at.is_none_or(|term| arm[term.factor] == term.value));
            there.all(|(at, arm)| {
                let mut first = arm.clone();
                first[factor] = 0;
                arms.iter()
                    .position(|other| *other == first)
                    .map(|at| same[at])
                    == Some(same[at])
            })
        };
        let mut idle = Vec::new();
        for factor in 0..self.levels.len() {
            if is_idle(factor, None) {
                idle.push(IdleFactor {
                    factor,
                    while_at: None,
                });
                continue;
            }
            for other in (0..self.levels.len()).filter(|other| *other != factor) {
                let values = (0..self.levels[other]).map(|value| {
                    Some(Term {
                        factor: other,
                        value,
                    })
                });
                let values = values.filter(|value| is_idle(factor, *value));
                idle.extend(values.map(|while_at| IdleFactor { factor, while_at }));
            }
        }
        idle
    }
}

/// Returns, for each item in `all`, the index of the first item with an equal `key`.
pub fn same<T, K: PartialEq>(all: &[T], key: impl Fn(&T) -> K) -> Vec<usize> {
    let keys: Vec<K> = all.iter().map(key).collect();
    let first = |own| keys.iter().position(|key| key == own).unwrap_or_default();
    keys.iter().map(first).collect()
}

/// Adds up the weights of equal arms and assigns the sum to the first of them.
fn merge(weights: &[f64], same: &[usize]) -> Vec<f64> {
    let mut merged = vec![0.0; weights.len()];
    for (weight, &at) in weights.iter().zip(same) {
        merged[at] += weight;
    }
    merged
}

/// Distributes merged weights evenly over equal arms.
fn share(merged: &[f64], same: &[usize]) -> Vec<f64> {
    let count = |at: usize| same.iter().filter(|&&first| first == at).count() as f64;
    same.iter().map(|&at| merged[at] / count(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Factorial, same};
    use ticktax_model::net_experiment::{IdleFactor, Term};

    fn main(factor: usize) -> Vec<Term> {
        vec![Term { factor, value: 1 }]
    }

    fn interaction(a: usize, b: usize) -> Vec<Term> {
        [main(a), main(b)].concat()
    }

    #[test]
    fn a_full_design_estimates_every_effect() {
        let factorial = Factorial::new(vec![2, 3]);
        assert_eq!(factorial.arms().len(), 6);
        assert_eq!(factorial.effects().len(), 1 + 2 + 2);
        let same: Vec<usize> = (0..6).collect();
        let (check, comparisons) = factorial.check(&same);
        assert!(check.is_whole() && check.idle.is_empty());
        assert_eq!(comparisons.len(), 5);
        // For y = 10 + 3·a + 5·(b = 2) + 2·a·(b = 2), the average effects can be computed by hand.
        let y = |arm: &[usize]| {
            let (a, b) = (arm[0] as f64, f64::from(u8::from(arm[1] == 2)));
            10.0 + 3.0 * a + 5.0 * b + 2.0 * a * b
        };
        let estimates: Vec<f64> = comparisons
            .iter()
            .map(|comparison| {
                let arms = factorial.arms();
                let parts = comparison.weights.iter().zip(&arms);
                parts.map(|(weight, arm)| weight * y(arm)).sum()
            })
            .collect();
        for (estimate, truth) in estimates.iter().zip([3.0 + 2.0 / 3.0, 0.0, 6.0, 0.0, 2.0]) {
            assert!((estimate - truth).abs() < 1e-9, "{estimate} {truth}");
        }
    }

    /// As in RFC 1323, window scaling and timestamps take effect only while the first switch is on.
    #[test]
    fn three_switches_with_four_distinct_cells_are_detected() {
        let factorial = Factorial::new(vec![2, 2, 2]);
        let same = same(&factorial.arms(), |arm| (arm[0] * arm[1], arm[0] * arm[2]));
        let (check, comparisons) = factorial.check(&same);
        assert_eq!((check.arms, check.different), (8, 4));
        assert_eq!((check.effects, check.rank), (6, 3));
        let off = Term {
            factor: 0,
            value: 0,
        };
        for factor in [1, 2] {
            let idle = IdleFactor {
                factor,
                while_at: Some(off),
            };
            assert!(check.idle.contains(&idle), "{:?}", check.idle);
        }
        assert_eq!(check.idle.len(), 2);
        let estimable: Vec<_> = comparisons
            .iter()
            .map(|comparison| comparison.terms.clone())
            .collect();
        assert_eq!(estimable, [main(0), main(1), main(2)]);
        let alias = |terms: &[Term]| {
            let mut found = check.aliases.iter().filter(|alias| alias.terms == terms);
            let is = &found.next().unwrap().is;
            let parts = is
                .iter()
                .map(|part| (part.value.round(), part.terms.clone()));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(alias(&interaction(0, 1)), [(2.0, main(1))]);
        assert_eq!(alias(&interaction(0, 2)), [(2.0, main(2))]);
        let last = alias(&interaction(1, 2));
        assert_eq!(last.len(), 3, "{last:?}");
    }

    #[test]
    fn a_factor_without_effect_is_reported() {
        let factorial = Factorial::new(vec![2, 2]);
        let same = same(&factorial.arms(), |arm| arm[0]);
        let (check, comparisons) = factorial.check(&same);
        let idle = IdleFactor {
            factor: 1,
            while_at: None,
        };
        assert_eq!(check.idle, [idle]);
        assert_eq!(check.nothing, [main(1), interaction(0, 1)]);
        assert_eq!(comparisons.len(), 1);
        // All arms must have a weight, including equal ones, because more runs reduce the noise.
        assert_eq!(comparisons[0].weights, [-0.5, -0.5, 0.5, 0.5]);
    }
}
