//! Published beside modelled, row by row.

use std::collections::BTreeMap;

use ticktax_model::case::{CaseStatement, Line, Remark};

use crate::cases::Case;
use crate::file::{CaseFile, Values};

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
    /// Whether every row is near enough, apart from those that are known to fail; and those do.
    pub fn holds(&self) -> bool {
        self.lines
            .iter()
            .all(|line| line.met() != line.fails.is_some())
    }

    /// The comparison as pages have it.
    pub fn statement(self, file: &CaseFile) -> CaseStatement {
        CaseStatement {
            head: file.head(),
            lines: self.lines,
            remarks: self.remarks,
            notes: file.notes(),
        }
    }

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
    Judgement {
        lines: lines(file, &modelled),
        remarks: case.remarks(file, &values, &modelled),
    }
}

/// The rows of a file beside what a model gives. Rows that the model has nothing for are left out.
pub fn lines(file: &CaseFile, modelled: &Modelled) -> Vec<Line> {
    let rows = file
        .series
        .iter()
        .flat_map(|series| series.rows.iter().map(move |row| (series, row)));
    let lines = rows.filter_map(|(series, row)| {
        let &value = modelled.get(&(series.name.clone(), row.at.clone()))?;
        let published = row.range.unwrap_or([row.middle(); 2]);
        Some(Line {
            series: series.name.clone(),
            unit: series.unit.clone(),
            at: row.at.clone(),
            published: (published[0], published[1]),
            modelled: value,
            fit: row.fit,
            basis: series.basis,
            residual: row.residual(value),
            allowed: series.allowed(row),
            fails: row.fails.clone(),
        })
    });
    lines.collect()
}

/// How badly a model misses the rows that calibrate: the sum of the squares of its residuals, each
/// in units of what is allowed.
pub fn misfit(case: &dyn Case, file: &CaseFile, values: &Values) -> f64 {
    let lines = lines(file, &case.model(file, values));
    let fits = lines.iter().filter(|line| line.fit);
    fits.map(|line| (line.residual / line.allowed.max(1e-9)).powi(2))
        .sum()
}
