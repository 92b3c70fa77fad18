//! Fits a case's free constants to the rows that the file marks for calibration.

use ticktax_model::case::FitOutcome;

use crate::cases::Case;
use crate::file::{CaseFile, Parameter, Values};
use crate::judge::misfit;

/// Result of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// All of the model's constants, including the fitted ones.
    pub values: Values,
    /// Misfit that remains after the fit (see [`misfit`]).
    pub misfit: f64,
    /// Number of times the fit ran the model.
    pub runs: u64,
}

impl Fitted {
    /// Compares the fitted constants with those in `file`, and tests the model on rows that it was
    /// not fitted to.
    pub fn outcome(&self, case: &dyn Case, file: &CaseFile) -> FitOutcome {
        let constants = file.constants().into_iter();
        let fitted = constants
            .filter(|constant| constant.fit_range.is_some())
            .map(|constant| {
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

/// Maximum number of rounds. From the third round onwards, each searches half the range of the one
/// before.
const ROUNDS: u32 = 14;
/// The search stops at this misfit, when the model misses the rows by 1 % of their tolerance.
const CLOSE_ENOUGH: f64 = 1e-4;
/// The search stops after this many rounds in a row without an improvement.
const PATIENCE: u32 = 4;

/// Fits all constants that have a search range in the file.
///
/// The search is deterministic. It first tries every point of a grid over the ranges, then finer
/// and finer grids around the best point. Returns `None` if the file has no constant to fit.
pub fn fit(case: &dyn Case, file: &CaseFile) -> Option<Fitted> {
    let wanted: Vec<FreeParameter<'_>> = file
        .parameters
        .iter()
        .filter_map(|(name, parameter)| FreeParameter::from_file(name, parameter))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let mut parts = parts(case, file);
    let mut best = (f64::INFINITY, file.values());
    let mut runs = 0;
    let mut idle_rounds = 0;
    let mut ranges: Vec<[f64; 2]> = wanted.iter().map(|free| free.range).collect();
    for round in 0..ROUNDS {
        let axes: Vec<Vec<f64>> = wanted
            .iter()
            .zip(&ranges)
            .map(|(free, range)| free.axis(*range, if round == 0 { free.steps } else { 5 }))
            .collect();
        let before = best.0;
        for point in grid(&axes) {
            let mut values = file.values();
            for (free, value) in wanted.iter().zip(point) {
                values = values.with(free.name, value);
            }
            runs += 1;
            let misfit = misfit_up_to(best.0, case, &mut parts, &values);
            if misfit < best.0 {
                best = (misfit, values);
            }
        }
        for (free, range) in wanted.iter().zip(&mut ranges) {
            let parts = if round == 0 {
                f64::from(free.steps)
            } else {
                4.0
            };
            let width = (range[1] - range[0]) / parts;
            let middle = best.1.get(free.name);
            *range = [
                (middle - width).max(free.range[0]),
                (middle + width).min(free.range[1]),
            ];
        }
        // If the model counts whole ticks, its results are constant near the best point, and more
        // rounds would not improve the fit.
        let better = before - best.0 > 1e-6 * before.min(1.0);
        idle_rounds = if better { 0 } else { idle_rounds + 1 };
        if idle_rounds == PATIENCE || best.0 < CLOSE_ENOUGH {
            break;
        }
    }
    Some(Fitted {
        values: best.1,
        misfit: best.0,
        runs,
    })
}

/// Splits the calibration rows by label, which is the setting to simulate. Rows with the same label
/// stay together, because the model simulates a setting only once.
fn parts(case: &dyn Case, file: &CaseFile) -> Vec<CaseFile> {
    let file = file.calibrating();
    if !case.has_independent_rows() {
        return vec![file];
    }
    let mut labels: Vec<&str> = Vec::new();
    for (_, row) in file.rows() {
        if !labels.contains(&&*row.at) {
            labels.push(&row.at);
        }
    }
    let part = |label: &&str| file.with_rows(|row| row.at == **label);
    labels.iter().map(part).collect()
}

/// Returns the sum of the parts' misfits. Stops adding once the sum exceeds `bound`, and moves the
/// part that tipped it over to the front. Bad constants then cost only one or two simulations.
fn misfit_up_to(bound: f64, case: &dyn Case, parts: &mut [CaseFile], values: &Values) -> f64 {
    let mut sum = 0.0;
    for place in 0..parts.len() {
        sum += misfit(case, &parts[place], values);
        if sum > bound {
            parts[..=place].rotate_right(1);
            break;
        }
    }
    sum
}

/// Returns the maximum number of times that [`fit`] runs the model. For each parameter, `steps`
/// yields the number of values tried in the first round.
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

/// A parameter that the fit may change.
struct FreeParameter<'a> {
    name: &'a str,
    range: [f64; 2],
    steps: u32,
    whole: bool,
}

impl<'a> FreeParameter<'a> {
    fn from_file(name: &'a str, parameter: &Parameter) -> Option<Self> {
        Some(Self {
            name,
            range: parameter.fit?,
            steps: parameter.steps,
            whole: parameter.whole,
        })
    }

    /// Returns `steps` evenly spaced values from `low` to `high`. For an integer parameter, returns
    /// the first `steps` integers in the range or, if the range contains none, the integer closest
    /// to its midpoint.
    fn axis(&self, [low, high]: [f64; 2], steps: u32) -> Vec<f64> {
        if self.whole {
            let first = low.ceil();
            let integers = (0..steps.max(2)).map(|n| first + f64::from(n));
            let integers: Vec<f64> = integers.take_while(|&value| value <= high).collect();
            return if integers.is_empty() {
                vec![f64::midpoint(low, high).round()]
            } else {
                integers
            };
        }
        let last = f64::from(steps - 1);
        (0..steps)
            .map(|n| low + (high - low) * f64::from(n) / last)
            .collect()
    }
}

/// Returns every combination of the axes' values.
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

#[cfg(test)]
mod tests {
    use super::{misfit, misfit_up_to, parts};
    use crate::cases::all;

    /// A model must not need rows with other labels, because the fit runs it on each part alone.
    #[test]
    fn the_misfits_of_the_parts_add_up_to_the_whole() {
        let mut split = 0;
        for case in all() {
            let file = case.file().unwrap();
            let (mut parts, values) = (parts(case, &file), file.values());
            split += usize::from(parts.len() > 1);
            let whole = misfit(case, &file.calibrating(), &values);
            let sum = misfit_up_to(f64::INFINITY, case, &mut parts, &values);
            assert!(
                (sum - whole).abs() <= 1e-9 * whole,
                "{}: {sum} {whole}",
                case.name()
            );
            if let Some(first) = parts.first() {
                let first = misfit(case, first, &values);
                let stopped = misfit_up_to(-1.0, case, &mut parts, &values);
                assert_eq!(stopped.to_bits(), first.to_bits());
            }
        }
        assert!(split >= 2, "{split}");
    }
}
