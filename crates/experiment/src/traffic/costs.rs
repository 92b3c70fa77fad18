//! What a byte, a packet, a call and an acknowledgement cost: CPU time as a sum of them, by least squares over the cells.
//!
//! All is taken a byte, so that cells count alike whatever they moved. Each block gives costs of its own, and the interval
//! of a cost is that of their mean. A unit whose numbers are the others' again in all cells, or change no more than chance
//! changes them, has no cost of its own.

use ticktax_model::net_experiment::{BoundUnit, CostRefusal, CostUnit, UnitCost, UnitCosts};
use ticktax_model::trial::Effect;

use super::effects::Blocks;
use crate::statistics::{
    dependencies, least_squares, left_over, mean, mean_interval, norm, variance,
};

/// A unit has to go apart from others by this share at least.
const APART: f64 = 0.05;

/// And by so many times what chance moves it.
const BEYOND_CHANCE: f64 = 4.0;

/// Cells that are off by more do not follow from the units.
const MISFIT: f64 = 0.2;

/// The costs.
pub(super) fn costs(blocks: &Blocks<'_>) -> UnitCosts {
    // By unit, then by block, then by cell. What goes apart the most is taken first: it can least be meant by another.
    let mut told: Vec<(CostUnit, Vec<Vec<f64>>)> = CostUnit::ALL
        .into_iter()
        .filter_map(|unit| Some((unit, blocks.unit(unit)?)))
        .collect();
    if let Some((_, others)) = told.split_first_mut() {
        // Acknowledgements come of packets, and last.
        let is_ack = |unit| unit == CostUnit::Ack;
        others.sort_by(|a, b| {
            let apart = apart(&b.1).total_cmp(&apart(&a.1));
            is_ack(a.0).cmp(&is_ack(b.0)).then(apart)
        });
    }
    let (units, all): (Vec<CostUnit>, Vec<Vec<Vec<f64>>>) = told.into_iter().unzip();
    let means: Vec<Vec<f64>> = all.iter().map(|of| over_blocks(of, mean)).collect();
    let slack = all.iter().zip(&means).map(|(of, means)| {
        let error = |values: &[f64]| (variance(values) / values.len() as f64).sqrt();
        let chance = norm(&over_blocks(of, error));
        (APART * norm(means)).max(BEYOND_CHANCE * chance)
    });
    let slack: Vec<f64> = slack.collect();
    let told = dependencies(&means, &slack);
    let mut kept = Vec::new();
    let mut bound = Vec::new();
    for (at, told) in told.into_iter().enumerate() {
        match told {
            None => kept.push(at),
            Some(with) => bound.push(BoundUnit {
                unit: units[at],
                with: largest(&with, &means, at)
                    .into_iter()
                    .map(|it| units[it])
                    .collect(),
            }),
        }
    }
    let times = blocks.cpu();
    let columns =
        |block: usize| -> Vec<&[f64]> { kept.iter().map(|&at| &*all[at][block]).collect() };
    let found: Vec<Vec<f64>> = times
        .iter()
        .enumerate()
        .filter_map(|(block, times)| least_squares(&columns(block), times))
        .collect();
    let costs = kept.iter().enumerate().map(|(place, &at)| {
        let each: Vec<f64> = found.iter().map(|it| it[place]).collect();
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
        .find(|it| it.ns.is_some_and(|ns| ns.high < 0.0));
    let refused = if costs.iter().any(|it| it.ns.is_none()) {
        Some(CostRefusal::TooFewBlocks)
    } else if misfit.is_some_and(|it| it > MISFIT) {
        Some(CostRefusal::Misfit)
    } else {
        negative.map(|it| CostRefusal::Negative { unit: it.unit })
    };
    UnitCosts {
        costs: if refused.is_none() { costs } else { Vec::new() },
        bound,
        equations,
        misfit,
        refused,
    }
}

/// How far the cells go apart, as a share of their mean, to a hundredth.
fn apart(blocks: &[Vec<f64>]) -> f64 {
    let cells = over_blocks(blocks, mean);
    let spread = variance(&cells).sqrt() / mean(&cells);
    (spread * 100.0).round()
}

/// A number for each cell, of its values in all blocks.
fn over_blocks(blocks: &[Vec<f64>], of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let cells = 0..blocks.first().map_or(0, Vec::len);
    let cells = cells.map(|cell| {
        let values: Vec<f64> = blocks.iter().map(|block| block[cell]).collect();
        of(&values)
    });
    cells.collect()
}

/// Of the columns that make up another, those that are a tenth of it at least.
fn largest(with: &[(usize, f64)], columns: &[Vec<f64>], of: usize) -> Vec<usize> {
    let length = norm(&columns[of]);
    let large = with
        .iter()
        .filter(|(at, often)| often.abs() * norm(&columns[*at]) >= 0.1 * length);
    large.map(|(at, _)| *at).collect()
}

/// What the units leave of the cells' times, as a share; `None` where there are no more cells than units.
fn misfit(kept: &[usize], columns: &[Vec<f64>], times: &[f64]) -> Option<f64> {
    if times.len() <= kept.len() {
        return None;
    }
    let columns: Vec<&[f64]> = kept.iter().map(|&at| &*columns[at]).collect();
    let found = least_squares(&columns, times)?;
    Some(norm(&left_over(&columns, &found, times)) / norm(times))
}
