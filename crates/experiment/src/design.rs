//! What a factorial design can tell: effects of factors, alone and by twos, over the cells that differ in effect.
//!
//! Every combination of values is a cell. What a value changes is a comparison of cells, and so is how much more it does
//! with a value of another factor. Cells in which the same is in effect are one cell, and their comparisons add up: some
//! comparisons then are nothing, and some are others again. Nothing is known here of what the factors are: all of this
//! follows from which cells are the same.
//!
//! ```
//! use ticktax_experiment::design::{Factorial, same};
//!
//! // Two switches, of which the second does nothing while the first is off.
//! let factorial = Factorial::new(vec![2, 2]);
//! let effects = |cell: &Vec<usize>| (cell[0], cell[0] * cell[1]);
//! let check = factorial.check(&same(&factorial.cells(), effects)).0;
//! assert_eq!((check.cells, check.different, check.rank), (4, 3, 2));
//! let off = check.idle[0].while_at.unwrap();
//! assert_eq!((check.idle[0].factor, off.factor, off.value), (1, 0, 0));
//! ```

use ticktax_model::net_experiment::{Alias, AliasPart, DesignCheck, IdleFactor, Term};

use crate::statistics::dependencies;

/// All combinations of the values of factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factorial {
    levels: Vec<usize>,
}

/// An effect that can be told, and how often each cell counts in it, by the cells' places.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One term, or the two of an interaction.
    pub terms: Vec<Term>,
    /// How often each cell counts.
    pub weights: Vec<f64>,
}

impl Factorial {
    /// Of factors with so many values each.
    pub fn new(levels: Vec<usize>) -> Self {
        Self { levels }
    }

    /// Every combination, that of all first values first; the last factor changes fastest.
    pub fn cells(&self) -> Vec<Vec<usize>> {
        self.levels.iter().fold(vec![Vec::new()], |cells, &levels| {
            let longer = cells.iter().flat_map(|cell| {
                (0..levels).map(move |value| {
                    let mut cell = cell.clone();
                    cell.push(value);
                    cell
                })
            });
            longer.collect()
        })
    }

    /// All effects, then all interactions of two.
    pub fn effects(&self) -> Vec<Vec<Term>> {
        let of = |factor: usize| {
            let values = 1..self.levels[factor];
            values.map(move |value| Term { factor, value })
        };
        let factors = 0..self.levels.len();
        let mut all: Vec<Vec<Term>> = factors.clone().flat_map(of).map(|it| vec![it]).collect();
        for first in factors.clone() {
            for second in first + 1..self.levels.len() {
                let pairs = of(first).flat_map(|a| of(second).map(move |b| vec![a, b]));
                all.extend(pairs);
            }
        }
        all
    }

    /// How often each cell counts in an effect: those with the value, less those with the first one, on average over
    /// all other factors; in an interaction, the first term's effect with the second, less that without.
    pub fn weights(&self, terms: &[Term]) -> Vec<f64> {
        let is_of = |factor: usize| terms.iter().any(|term| term.factor == factor);
        let others = self.levels.iter().enumerate();
        let others = others.filter(|(factor, _)| !is_of(*factor));
        let others: usize = others.map(|(_, levels)| levels).product();
        let weight = |cell: Vec<usize>| {
            let signs = terms.iter().map(|term| match cell[term.factor] {
                0 => -1.0,
                value if value == term.value => 1.0,
                _ => 0.0,
            });
            signs.product::<f64>() / others as f64
        };
        self.cells().into_iter().map(weight).collect()
    }

    /// What can be told where each cell is the same as the one that `same` names, itself or one before it: and the
    /// comparisons that can be told apart, in which cells that are the same share their weight.
    pub fn check(&self, same: &[usize]) -> (DesignCheck, Vec<Comparison>) {
        let effects = self.effects();
        let cells = same.len();
        let merged: Vec<Vec<f64>> = effects
            .iter()
            .map(|it| merge(&self.weights(it), same))
            .collect();
        let told = dependencies(&merged, &vec![1e-9; merged.len()]);
        let mut check = DesignCheck {
            cells,
            different: same.iter().enumerate().filter(|(at, it)| at == *it).count(),
            effects: effects.len(),
            idle: self.idle(same),
            ..DesignCheck::default()
        };
        let mut comparisons = Vec::new();
        for ((terms, merged), told) in effects.iter().zip(merged).zip(told) {
            match told {
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

    /// Factors that change nothing, or nothing while another has some value.
    fn idle(&self, same: &[usize]) -> Vec<IdleFactor> {
        let cells = self.cells();
        let is_idle = |factor: usize, while_at: Option<Term>| {
            let mut there = cells
                .iter()
                .enumerate()
                .filter(|(_, cell)| while_at.is_none_or(|it| cell[it.factor] == it.value));
            there.all(|(at, cell)| {
                let mut first = cell.clone();
                first[factor] = 0;
                cells.iter().position(|it| *it == first).map(|it| same[it]) == Some(same[at])
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
            for other in (0..self.levels.len()).filter(|it| *it != factor) {
                let values = (0..self.levels[other]).map(|value| {
                    Some(Term {
                        factor: other,
                        value,
                    })
                });
                let values = values.filter(|it| is_idle(factor, *it));
                idle.extend(values.map(|while_at| IdleFactor { factor, while_at }));
            }
        }
        idle
    }
}

/// For each of `all`, the place of the first that is the same in `what`.
pub fn same<T, K: PartialEq>(all: &[T], what: impl Fn(&T) -> K) -> Vec<usize> {
    let keys: Vec<K> = all.iter().map(what).collect();
    let first = |key| keys.iter().position(|it| it == key).unwrap_or_default();
    keys.iter().map(first).collect()
}

/// The weights of cells that are the same, at the first of them.
fn merge(weights: &[f64], same: &[usize]) -> Vec<f64> {
    let mut merged = vec![0.0; weights.len()];
    for (weight, &at) in weights.iter().zip(same) {
        merged[at] += weight;
    }
    merged
}

/// Such a weight, in equal parts to all cells that are the same.
fn share(merged: &[f64], same: &[usize]) -> Vec<f64> {
    let count = |at: usize| same.iter().filter(|&&it| it == at).count() as f64;
    same.iter().map(|&at| merged[at] / count(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Factorial, same};
    use ticktax_model::net_experiment::{IdleFactor, Term};

    fn main(factor: usize) -> Vec<Term> {
        vec![Term { factor, value: 1 }]
    }

    fn both(a: usize, b: usize) -> Vec<Term> {
        [main(a), main(b)].concat()
    }

    #[test]
    fn a_whole_design_tells_all() {
        let factorial = Factorial::new(vec![2, 3]);
        assert_eq!(factorial.cells().len(), 6);
        assert_eq!(factorial.effects().len(), 1 + 2 + 2);
        let same: Vec<usize> = (0..6).collect();
        let (check, comparisons) = factorial.check(&same);
        assert!(check.is_whole() && check.idle.is_empty());
        assert_eq!(comparisons.len(), 5);
        // y = 10 + 3·a + 5·(b = 2) + 2·a·(b = 2), whose effects on average are known.
        let y = |cell: &[usize]| {
            let (a, b) = (cell[0] as f64, f64::from(u8::from(cell[1] == 2)));
            10.0 + 3.0 * a + 5.0 * b + 2.0 * a * b
        };
        let told: Vec<f64> = comparisons
            .iter()
            .map(|it| {
                let cells = factorial.cells();
                let parts = it.weights.iter().zip(&cells);
                parts.map(|(weight, cell)| weight * y(cell)).sum()
            })
            .collect();
        for (told, truth) in told.iter().zip([3.0 + 2.0 / 3.0, 0.0, 6.0, 0.0, 2.0]) {
            assert!((told - truth).abs() < 1e-9, "{told} {truth}");
        }
    }

    /// rfc1323, `win_scale` and timestamps: what is on the wire is the first with each of the others.
    #[test]
    fn three_switches_that_make_four_cells_are_found_out() {
        let factorial = Factorial::new(vec![2, 2, 2]);
        let same = same(&factorial.cells(), |it| (it[0] * it[1], it[0] * it[2]));
        let (check, comparisons) = factorial.check(&same);
        assert_eq!((check.cells, check.different), (8, 4));
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
        let told: Vec<_> = comparisons.iter().map(|it| it.terms.clone()).collect();
        assert_eq!(told, [main(0), main(1), main(2)]);
        let alias = |terms: &[Term]| {
            let mut found = check.aliases.iter().filter(|it| it.terms == terms);
            let is = &found.next().unwrap().is;
            let parts = is.iter().map(|it| (it.value.round(), it.terms.clone()));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(alias(&both(0, 1)), [(2.0, main(1))]);
        assert_eq!(alias(&both(0, 2)), [(2.0, main(2))]);
        let last = alias(&both(1, 2));
        assert_eq!(last.len(), 3, "{last:?}");
    }

    #[test]
    fn a_factor_that_does_nothing_is_named() {
        let factorial = Factorial::new(vec![2, 2]);
        let same = same(&factorial.cells(), |it| it[0]);
        let (check, comparisons) = factorial.check(&same);
        let idle = IdleFactor {
            factor: 1,
            while_at: None,
        };
        assert_eq!(check.idle, [idle]);
        assert_eq!(check.nothing, [main(1), both(0, 1)]);
        assert_eq!(comparisons.len(), 1);
        // Both cells of each value count: the more runs, the less noise.
        assert_eq!(comparisons[0].weights, [-0.5, -0.5, 0.5, 0.5]);
    }
}
