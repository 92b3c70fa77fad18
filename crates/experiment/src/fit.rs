//! Calibration: the constants that a file wants fitted, from the rows that it names.

use ticktax_model::case::FitOutcome;

use crate::cases::Case;
use crate::file::{CaseFile, Values};
use crate::judge::misfit;

/// What a fit came to.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// All constants, the fitted ones among them.
    pub values: Values,
    /// What is left: see [`misfit`].
    pub misfit: f64,
    /// How many times the model was run.
    pub runs: u64,
}

impl Fitted {
    /// What it came to, as pages have it: beside what the file has, and how well the model does on
    /// rows that it was not fitted to.
    pub fn outcome(&self, case: &dyn Case, file: &CaseFile) -> FitOutcome {
        let constants = file.constants().into_iter();
        let fitted = constants.filter(|it| it.fit.is_some()).map(|constant| {
            let value = self.values.get(&constant.name);
            (constant, value)
        });
        FitOutcome {
            constants: fitted.collect(),
            misfit: self.misfit,
            runs: self.runs,
            hold_out: case.hold_out(file),
        }
    }
}

/// Rounds of closing in, each to half of the range before.
const ROUNDS: u32 = 14;
/// Rounds without a better result after which it is over.
const PATIENCE: u32 = 4;

/// Fits all constants that the file gives a range. The same file gives the same result: every
/// value of a grid over the ranges is tried, then finer grids around the best. `None` where the
/// file wants nothing fitted.
pub fn fit(case: &dyn Case, file: &CaseFile) -> Option<Fitted> {
    let wanted: Vec<(&String, [f64; 2], u16)> = file
        .parameters
        .iter()
        .filter_map(|(name, it)| Some((name, it.fit?, it.steps)))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let rows = file.calibrating();
    let mut best = (f64::INFINITY, file.values());
    let mut runs = 0;
    let mut idle_rounds = 0;
    let mut centre: Vec<[f64; 2]> = wanted.iter().map(|&(_, range, _)| range).collect();
    for round in 0..ROUNDS {
        let axes: Vec<Vec<f64>> = wanted
            .iter()
            .zip(&centre)
            .map(|(&(_, _, steps), range)| axis(*range, if round == 0 { steps } else { 5 }))
            .collect();
        let before = best.0;
        for point in grid(&axes) {
            let mut values = file.values();
            for (&(name, ..), value) in wanted.iter().zip(point) {
                values = values.with(name, value);
            }
            runs += 1;
            let misfit = misfit(case, &rows, &values);
            if misfit < best.0 {
                best = (misfit, values);
            }
        }
        for (&(name, range, steps), range_now) in wanted.iter().zip(&mut centre) {
            let width =
                (range_now[1] - range_now[0]) / if round == 0 { f64::from(steps) } else { 4.0 };
            let middle = best.1.get(name);
            *range_now = [
                (middle - width).max(range[0]),
                (middle + width).min(range[1]),
            ];
        }
        // A model that counts whole ticks is flat around its best: nothing more to find.
        let better = before - best.0 > 1e-6 * before.min(1.0);
        idle_rounds = if better { 0 } else { idle_rounds + 1 };
        if idle_rounds == PATIENCE {
            break;
        }
    }
    Some(Fitted {
        values: best.1,
        misfit: best.0,
        runs,
    })
}

/// `steps` values from one end of a range to the other.
fn axis([low, high]: [f64; 2], steps: u16) -> Vec<f64> {
    let last = f64::from(steps - 1);
    (0..steps)
        .map(|n| low + (high - low) * f64::from(n) / last)
        .collect()
}

/// Every combination of the values on the axes.
fn grid(axes: &[Vec<f64>]) -> Vec<Vec<f64>> {
    axes.iter().fold(vec![Vec::new()], |points, axis| {
        let longer = points.iter().flat_map(|point| {
            axis.iter().map(move |&value| {
                let mut point = point.clone();
                point.push(value);
                point
            })
        });
        longer.collect()
    })
}
