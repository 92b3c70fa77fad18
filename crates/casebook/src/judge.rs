//! Compares modelled figures with published or derived ones, row by row.

use std::collections::BTreeMap;

use ticktax_model::case::{CaseStatement, Line, Remark, RowKind};

use crate::cases::Case;
use crate::file::{CaseFile, Published, Series, Values, page};
use crate::sensitivity;

/// Figures from the model, by series name and row label.
pub type Modelled = BTreeMap<(String, String), f64>;

/// Result of comparing a case's model with the case file.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// All rows.
    pub lines: Vec<Line>,
    /// The model's remarks.
    pub remarks: Vec<Remark>,
    /// All of the model's figures.
    pub modelled: Modelled,
}

impl Judgement {
    /// Returns the row of `series` with the label `at`, or `None` if the series lacks it.
    pub fn line(&self, series: &str, at: &str) -> Option<&Line> {
        self.lines
            .iter()
            .find(|line| line.series == series && line.label == at)
    }
}

/// Returns the figures that the text of a case file can mention: those of the model, with the
/// constants in `file`, the constants themselves, and the ends of what the model is compared with.
pub fn figures(case: &dyn Case, file: &CaseFile) -> Modelled {
    let values = file.values();
    let mut figures = case.model(file, &values);
    for (name, value) in values.0 {
        figures.insert(("parameters".to_owned(), name), value);
    }
    for (series, row) in file.rows() {
        let ends = row.target().into_iter().flatten();
        for (which, end) in ["least", "most"].into_iter().zip(ends) {
            let key = (format!("{which} of {}", series.name), row.at.clone());
            figures.insert(key, end);
        }
    }
    figures
}

/// Runs the model with the constants in `file`, and compares the results with the rows in the file.
pub fn judge(case: &dyn Case, file: &CaseFile) -> Judgement {
    let values = file.values();
    let modelled = figures(case, file);
    let mut remarks = case.remarks(file, &values, &modelled);
    if let Some(design) = &file.design {
        remarks.extend(design.remarks());
    }
    Judgement {
        lines: lines(file, &modelled),
        remarks,
        modelled,
    }
}

/// Returns the complete report on a case: the comparison, the predictions for rows that the model
/// was not fitted to, and how sensitive the results are to the constants.
pub fn statement(case: &dyn Case, file: &CaseFile) -> CaseStatement {
    let Judgement {
        mut lines,
        remarks,
        modelled,
    } = judge(case, file);
    let sensitivity = sensitivity::sensitivity(case, file);
    for parameter in &sensitivity {
        sensitivity::mark(parameter, &mut lines);
    }
    CaseStatement {
        case: file.head(),
        summary: file.summary(&modelled),
        constants: file.constants(),
        rows: lines,
        measured: Vec::new(),
        this_machine: Vec::new(),
        hold_out: case.hold_out(file),
        sensitivity,
        remarks,
        notes: file.notes(&modelled),
    }
}

/// Combines each row in `file` with its modelled figure.
pub fn lines(file: &CaseFile, modelled: &Modelled) -> Vec<Line> {
    let line = |(series, row): (&Series, &Published)| {
        let key = (series.name.clone(), row.at.clone());
        let value = modelled.get(&key).copied();
        let residual = value.and_then(|value| row.residual(value));
        let kind = match residual {
            None => RowKind::NotComparable,
            Some(_) if row.fit => RowKind::Fit,
            Some(_) if row.identity => RowKind::Identity,
            Some(_) if !row.chosen.is_empty() => RowKind::Chosen,
            Some(_) => RowKind::Predicted,
        };
        Line {
            series: key.0,
            unit: series.unit.clone(),
            label: key.1,
            fact: row.fact.clone(),
            place: row.place.clone(),
            published: row.published_ends(),
            derived: row.derived_ends(),
            modelled: value,
            kind,
            chosen: row.chosen.clone(),
            residual,
            allowed: series.allowed(row),
            known_failure: row.fails.as_ref().map(|why| page::fill(why, modelled)),
            only_with: Vec::new(),
        }
    };
    file.rows().map(line).collect()
}

/// Returns how badly the model misses the calibration rows: the sum of the squares of their
/// residuals, each divided by the row's tolerance. It is infinite if the model has no value for any
/// of the rows.
pub fn misfit(case: &dyn Case, file: &CaseFile, values: &Values) -> f64 {
    let modelled = case.sample(file, values);
    let miss = |(series, row): (&Series, &Published)| {
        let value = modelled.get(&(series.name.clone(), row.at.clone()));
        let residual = value.and_then(|&value| row.residual(value));
        let residual = residual.filter(|residual| residual.is_finite());
        residual.map_or(f64::INFINITY, |residual| {
            (residual / series.allowed(row).max(1e-9)).powi(2)
        })
    };
    file.rows().filter(|(_, row)| row.fit).map(miss).sum()
}
