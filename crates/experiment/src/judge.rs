//! Published and derived beside modelled, row by row.

use std::collections::BTreeMap;

use ticktax_model::case::{CaseStatement, Line, Remark, RowKind};

use crate::cases::Case;
use crate::file::{CaseFile, Published, Series, Values};
use crate::sensitivity;

/// What a model gives, by series and row.
pub type Modelled = BTreeMap<(String, String), f64>;

/// A case's comparison.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// All rows.
    pub lines: Vec<Line>,
    /// What else the model says, or cannot.
    pub remarks: Vec<Remark>,
}

impl Judgement {
    /// A row by series and place.
    pub fn line(&self, series: &str, at: &str) -> Option<&Line> {
        self.lines
            .iter()
            .find(|line| line.series == series && line.at == at)
    }
}

/// Runs a case's model with the constants of its file, and compares.
pub fn judge(case: &dyn Case, file: &CaseFile) -> Judgement {
    let values = file.values();
    let modelled = case.model(file, &values);
    let mut remarks = case.remarks(file, &values, &modelled);
    if let Some(design) = &file.design {
        remarks.push(sensitivity::design_remark(design));
    }
    Judgement {
        lines: lines(file, &modelled),
        remarks,
    }
}

/// All that there is to say of a case: the comparison, what it predicts when other rows calibrate it,
/// and what other constants would give.
pub fn statement(case: &dyn Case, file: &CaseFile) -> CaseStatement {
    let Judgement { mut lines, remarks } = judge(case, file);
    let sensitivity = sensitivity::sensitivity(case, file);
    for it in &sensitivity {
        sensitivity::mark(it, &mut lines);
    }
    CaseStatement {
        head: file.head(),
        constants: file.constants(),
        lines,
        measured: Vec::new(),
        here: Vec::new(),
        hold_out: case.hold_out(file),
        sensitivity,
        remarks,
        notes: file.notes(),
    }
}

/// The rows of a file beside what a model gives.
pub fn lines(file: &CaseFile, modelled: &Modelled) -> Vec<Line> {
    let line = |(series, row): (&Series, &Published)| {
        let key = (series.name.clone(), row.at.clone());
        let value = modelled.get(&key).copied();
        let residual = value.and_then(|value| row.residual(value));
        let kind = match (residual, row.fit) {
            (None, _) => RowKind::NotComparable,
            (Some(_), true) => RowKind::Fit,
            (Some(_), false) => RowKind::Predicted,
        };
        Line {
            series: key.0,
            unit: series.unit.clone(),
            at: key.1,
            quote: row.quote.clone(),
            published: row.published_ends(),
            derived: row.derived_ends(),
            modelled: value,
            kind,
            residual,
            allowed: series.allowed(row),
            fails: row.fails.clone(),
            only_with: Vec::new(),
        }
    };
    file.rows().map(line).collect()
}

/// How badly a model misses the rows that calibrate: the sum of the squares of its residuals, each
/// in units of what is allowed. A row that the model has nothing for is missed without end.
pub fn misfit(case: &dyn Case, file: &CaseFile, values: &Values) -> f64 {
    let modelled = case.sample(file, values);
    let miss = |(series, row): (&Series, &Published)| {
        let value = modelled.get(&(series.name.clone(), row.at.clone()));
        let residual = value.and_then(|&value| row.residual(value));
        let residual = residual.filter(|it| it.is_finite());
        residual.map_or(f64::INFINITY, |it| {
            (it / series.allowed(row).max(1e-9)).powi(2)
        })
    };
    file.rows().filter(|(_, row)| row.fit).map(miss).sum()
}
