//! Estimates the CPU cost of a byte, a packet, a call and an acknowledgement.
//!
//! An arm's CPU time is modelled as the sum of the costs of all its units. The costs are fitted
//! over all arms by least squares. All figures are per byte of user data, so all arms have equal
//! weight no matter how much data they transferred. Each block yields its own estimate of the
//! costs. The cost of a unit is the mean over the blocks, with its interval. A unit has no separate
//! cost in two cases: if its counts are a combination of other units' counts in all arms, or if its
//! counts vary only by chance.

use ticktax_model::comparison::Effect;
use ticktax_model::net_experiment::{BoundUnit, CostRefusal, CostUnit, UnitCost, UnitCosts};

use super::effects::Blocks;
use ticktax_experiment::statistics::{
    dependencies, least_squares, left_over, mean, mean_interval, norm, variance,
};

/// A unit gets its own cost only if its counts differ from every combination of other units' counts
/// by at least this fraction of its counts.
const APART: f64 = 0.05;

/// A unit gets its own cost only if its counts differ from every combination of other units' counts
/// by at least this many standard errors.
const BEYOND_CHANCE: f64 = 4.0;

/// Maximum residual of the fit, as a fraction of the arms' times. If it is larger, the units do not
/// explain these times.
const MISFIT: f64 = 0.2;

pub(super) fn costs(blocks: &Blocks<'_>) -> UnitCosts {
    // Each unit's counts, by block and arm. Sort the units by the spread of their counts between
    // the arms, largest first, because those with a large spread are the least likely to be
    // confused with others.
    let mut counts: Vec<(CostUnit, Vec<Vec<f64>>)> = CostUnit::ALL
        .into_iter()
        .filter_map(|unit| Some((unit, blocks.unit(unit)?)))
        .collect();
    if let Some((_, others)) = counts.split_first_mut() {
        // The number of acknowledgements follows from the number of packets, so put
        // acknowledgements last.
        let is_ack = |unit| unit == CostUnit::Ack;
        others.sort_by(|a, b| {
            let apart = apart(&b.1).total_cmp(&apart(&a.1));
            is_ack(a.0).cmp(&is_ack(b.0)).then(apart)
        });
    }
    let (units, counts_by_unit): (Vec<CostUnit>, Vec<Vec<Vec<f64>>>) = counts.into_iter().unzip();
    let means: Vec<Vec<f64>> = counts_by_unit
        .iter()
        .map(|blocks| over_blocks(blocks, mean))
        .collect();
    let slack = counts_by_unit.iter().zip(&means).map(|(blocks, means)| {
        let error = |values: &[f64]| (variance(values) / values.len() as f64).sqrt();
        let chance = norm(&over_blocks(blocks, error));
        (APART * norm(means)).max(BEYOND_CHANCE * chance)
    });
    let slack: Vec<f64> = slack.collect();
    let dependence = dependencies(&means, &slack);
    let mut kept = Vec::new();
    let mut bound = Vec::new();
    for (at, dependence) in dependence.into_iter().enumerate() {
        match dependence {
            None => kept.push(at),
            Some(with) => bound.push(BoundUnit {
                unit: units[at],
                with: largest(&with, &means, at)
                    .into_iter()
                    .map(|other| units[other])
                    .collect(),
            }),
        }
    }
    let times = blocks.cpu();
    let columns = |block: usize| -> Vec<&[f64]> {
        kept.iter().map(|&at| &*counts_by_unit[at][block]).collect()
    };
    let found: Vec<Vec<f64>> = times
        .iter()
        .enumerate()
        .filter_map(|(block, times)| least_squares(&columns(block), times))
        .collect();
    let costs = kept.iter().enumerate().map(|(place, &at)| {
        let each: Vec<f64> = found.iter().map(|costs| costs[place]).collect();
        let ns = mean_interval(&each).map(|(low, high)| Effect {
            value: mean(&each),
            low,
            high,
        });
        UnitCost {
            unit: units[at],
            ns,
        }
    });
    let costs: Vec<UnitCost> = costs.collect();
    let equations = means.first().map_or(0, Vec::len);
    let misfit = misfit(&kept, &means, &over_blocks(&times, mean));
    let negative = costs
        .iter()
        .find(|cost| cost.ns.is_some_and(|ns| ns.high < 0.0));
    let refused = if costs.iter().any(|cost| cost.ns.is_none()) {
        Some(CostRefusal::TooFewBlocks)
    } else if misfit.is_some_and(|misfit| misfit > MISFIT) {
        Some(CostRefusal::Misfit)
    } else {
        negative.map(|cost| CostRefusal::Negative { unit: cost.unit })
    };
    UnitCosts {
        costs: if refused.is_none() { costs } else { Vec::new() },
        bound,
        equations,
        misfit,
        refused,
    }
}

/// Returns the spread between the arms, rounded to whole percentages of the mean over the arms.
fn apart(blocks: &[Vec<f64>]) -> f64 {
    let arms = over_blocks(blocks, mean);
    let spread = variance(&arms).sqrt() / mean(&arms);
    (spread * 100.0).round()
}

/// Applies `summary` to each arm's values in all blocks.
fn over_blocks(blocks: &[Vec<f64>], summary: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let arms = 0..blocks.first().map_or(0, Vec::len);
    let arms = arms.map(|arm| {
        let values: Vec<f64> = blocks.iter().map(|block| block[arm]).collect();
        summary(&values)
    });
    arms.collect()
}

/// Returns those columns in `with` that contribute at least a tenth of the length of the column
/// `of`.
fn largest(with: &[(usize, f64)], columns: &[Vec<f64>], of: usize) -> Vec<usize> {
    let length = norm(&columns[of]);
    let large = with
        .iter()
        .filter(|(at, often)| often.abs() * norm(&columns[*at]) >= 0.1 * length);
    large.map(|(at, _)| *at).collect()
}

/// Returns the residual of the fit as a fraction of the arms' times. Returns `None` unless there
/// are more arms than units.
fn misfit(kept: &[usize], columns: &[Vec<f64>], times: &[f64]) -> Option<f64> {
    if times.len() <= kept.len() {
        return None;
    }
    let columns: Vec<&[f64]> = kept.iter().map(|&at| &*columns[at]).collect();
    let found = least_squares(&columns, times)?;
    Some(norm(&left_over(&columns, &found, times)) / norm(times))
}
