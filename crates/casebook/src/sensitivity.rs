//! Determines how much a case's results depend on its free parameters.

use ticktax_model::case::{Line, Sensitivity, SensitivityPoint};

use crate::cases::Case;
use crate::file::{CaseFile, Parameter};
use crate::fit::fit;
use crate::judge::lines;

/// Minimum number of values to try. With fewer, it would be unclear whether a row depends on the
/// parameter.
const MIN_POINTS: usize = 3;

/// Varies each parameter that has alternative values in the file, one at a time.
pub fn sensitivity(case: &dyn Case, file: &CaseFile) -> Vec<Sensitivity> {
    // Skip rows without a target, because the model can neither match nor miss them.
    let rows = file.with_rows(|row| row.target().is_some());
    let swept = file
        .parameters
        .iter()
        .filter(|(_, parameter)| !parameter.others.is_empty());
    swept
        .map(|(name, parameter)| vary(case, &rows, name, parameter))
        .collect()
}

fn vary(case: &dyn Case, file: &CaseFile, name: &str, varied: &Parameter) -> Sensitivity {
    let mut values = varied.others.clone();
    if !values.contains(&varied.value) {
        values.push(varied.value);
    }
    values.sort_by(f64::total_cmp);
    let at = |&value: &f64| {
        let mut file = file.clone();
        for (other, parameter) in &mut file.parameters {
            if other == name {
                parameter.value = value;
            }
            let used = (value - varied.value).abs() <= f64::EPSILON * value.abs();
            if used || !varied.refit.contains(other) {
                parameter.fit = None;
            }
        }
        let values = fit(case, &file).map_or_else(|| file.values(), |fitted| fitted.values);
        let lines = lines(&file, &case.sample(&file, &values));
        let compared = lines.into_iter().filter(|line| line.met().is_some());
        (value, compared.collect::<Vec<Line>>())
    };
    let points: Vec<(f64, Vec<Line>)> = values.iter().map(at).collect();
    let places = points.iter().map(|(_, lines)| lines.len()).min();
    let differs = |&place: &usize| {
        let met = |(_, lines): &(f64, Vec<Line>)| lines[place].met();
        points.iter().any(|point| met(point) != met(&points[0]))
    };
    let places: Vec<usize> = (0..places.unwrap_or(0)).filter(differs).collect();
    let row = |&place: &usize| {
        let line = &points[0].1[place];
        (line.series.clone(), line.label.clone())
    };
    let point = |(value, lines): &(f64, Vec<Line>)| SensitivityPoint {
        value: *value,
        used: (value - varied.value).abs() <= f64::EPSILON * value.abs(),
        matched: lines.iter().filter(|line| line.met() == Some(true)).count(),
        comparable: lines.len(),
        outcomes: places
            .iter()
            .map(|&place| {
                let line = &lines[place];
                (line.modelled.unwrap_or(f64::NAN), line.met() == Some(true))
            })
            .collect(),
    };
    Sensitivity {
        parameter: name.to_owned(),
        unit: varied.unit.clone(),
        refitted: varied.refit.clone(),
        rows: places.iter().map(row).collect(),
        points: points.iter().map(point).collect(),
    }
}

/// Marks each row that the model matches with only one of the values that were tried.
pub(crate) fn mark(sensitivity: &Sensitivity, lines: &mut [Line]) {
    if sensitivity.points.len() < MIN_POINTS {
        return;
    }
    for (place, (series, at)) in sensitivity.rows.iter().enumerate() {
        let met = sensitivity
            .points
            .iter()
            .filter(|point| point.outcomes[place].1);
        let met: Vec<f64> = met.map(|point| point.value).collect();
        let [value] = met[..] else { continue };
        for line in lines.iter_mut() {
            if line.series == *series && line.label == *at {
                let name = &sensitivity.parameter;
                line.only_with.push(format!("{name} = {value}"));
            }
        }
    }
}
