//! Calibration: the constants that a file wants fitted, from the rows that it names.

use ticktax_model::case::FitOutcome;

use crate::cases::Case;
use crate::file::{CaseFile, Parameter, Values};
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
    let wanted: Vec<Wanted<'_>> = file
        .parameters
        .iter()
        .filter_map(|(name, it)| Wanted::of(name, it))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let rows = file.calibrating();
    let mut best = (f64::INFINITY, file.values());
    let mut runs = 0;
    let mut idle_rounds = 0;
    let mut ranges: Vec<[f64; 2]> = wanted.iter().map(|it| it.range).collect();
    for round in 0..ROUNDS {
        let axes: Vec<Vec<f64>> = wanted
            .iter()
            .zip(&ranges)
            .map(|(it, range)| it.axis(*range, if round == 0 { it.steps } else { 5 }))
            .collect();
        let before = best.0;
        for point in grid(&axes) {
            let mut values = file.values();
            for (it, value) in wanted.iter().zip(point) {
                values = values.with(it.name, value);
            }
            runs += 1;
            let misfit = misfit(case, &rows, &values);
            if misfit < best.0 {
                best = (misfit, values);
            }
        }
        for (it, range) in wanted.iter().zip(&mut ranges) {
            let parts = if round == 0 { f64::from(it.steps) } else { 4.0 };
            let width = (range[1] - range[0]) / parts;
            let middle = best.1.get(it.name);
            *range = [
                (middle - width).max(it.range[0]),
                (middle + width).min(it.range[1]),
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

/// The most times that [`fit`] runs the model for parameters with these many values in the first round.
pub(crate) fn max_runs(steps: impl IntoIterator<Item = u64>) -> u64 {
    let (mut first, mut later) = (1_u64, 1_u64);
    let mut is_any = false;
    for steps in steps {
        is_any = true;
        first = first.saturating_mul(steps);
        later = later.saturating_mul(5);
    }
    let rounds = u64::from(ROUNDS) - 1;
    if is_any {
        first.saturating_add(later.saturating_mul(rounds))
    } else {
        0
    }
}

/// A parameter that is to be found.
struct Wanted<'a> {
    name: &'a str,
    range: [f64; 2],
    steps: u32,
    whole: bool,
}

impl<'a> Wanted<'a> {
    fn of(name: &'a str, it: &Parameter) -> Option<Self> {
        Some(Self {
            name,
            range: it.fit?,
            steps: it.steps,
            whole: it.whole,
        })
    }

    /// `steps` values from one end of a range to the other; of whole numbers, those in it, or the one
    /// that is nearest.
    fn axis(&self, [low, high]: [f64; 2], steps: u32) -> Vec<f64> {
        if self.whole {
            let first = low.ceil();
            let whole = (0..steps.max(2)).map(|n| first + f64::from(n));
            let whole: Vec<f64> = whole.take_while(|&value| value <= high).collect();
            return if whole.is_empty() {
                vec![f64::midpoint(low, high).round()]
            } else {
                whole
            };
        }
        let last = f64::from(steps - 1);
        (0..steps)
            .map(|n| low + (high - low) * f64::from(n) / last)
            .collect()
    }
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
