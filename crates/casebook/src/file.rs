//! Case files. They contain published figures, figures derived from them, and the model's
//! parameters and tolerances. `docs/reference/case.md` describes the format.

mod check;
mod design;
mod error;
mod formula;
pub(crate) mod page;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use ticktax_model::case::{Ends, Remark};

pub use design::{Baseline, Design};
pub use error::CaseError;
pub use formula::Derived;
pub use page::Page;

/// A published investigation, parsed from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaseFile {
    /// Name of the case, which is the file name without `.toml`.
    pub name: String,
    /// One-line summary.
    pub title: String,
    /// Where and when the investigation was published.
    pub source: String,
    /// The mechanism that the model reproduces.
    pub mechanism: String,
    /// The lines that open the report.
    pub page: Option<Page>,
    /// The scenario that models the case, or `None` if a module of ticktax models it.
    pub model: Option<ScenarioModel>,
    /// Constants of the model.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// Published figures.
    #[serde(default)]
    pub series: Vec<Series>,
    /// A published experiment's on/off switches, and the effects that they enable.
    pub design: Option<Design>,
    /// Published observations that the model does not reproduce, and why.
    #[serde(default)]
    pub not_reproduced: Vec<Remark>,
    /// Inconsistencies within the source.
    #[serde(default)]
    pub oddities: Vec<Remark>,
}

/// A simulator scenario that serves as a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioModel {
    /// Path of the scenario file, relative to the directory of the case file.
    pub scenario: String,
    /// Scenario parameter that is set to each row's label (`at`), named as in `sweep --vary`.
    /// `None` means that all rows have the same setup.
    pub row: Option<String>,
}

/// One of the model's constants: published, fitted or assumed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value. For a fitted constant, this is the result of the last fit.
    pub value: f64,
    /// Unit of the value.
    #[serde(default)]
    pub unit: String,
    /// Fact in the source that gives the constant, in our words. Only for published constants.
    #[serde(alias = "quote")]
    pub fact: Option<String>,
    /// Where the fact stands in the source.
    pub place: Option<String>,
    /// Why this value was chosen. Only for assumed constants.
    #[serde(default)]
    pub from: String,
    /// Range that a fit searches. Only for fitted constants.
    pub fit: Option<[f64; 2]>,
    /// Number of values in the range that a fit tries before it narrows the search, from 2 to 1000.
    #[serde(default = "default_steps")]
    pub steps: u32,
    /// Whether the value must be an integer.
    #[serde(default)]
    pub whole: bool,
    /// Alternatives to `value` that the sensitivity analysis tries.
    #[serde(default, rename = "try")]
    pub others: Vec<f64>,
    /// Parameters that the sensitivity analysis fits anew for each of this parameter's alternative
    /// values.
    #[serde(default)]
    pub refit: Vec<String>,
    /// Scenario parameter that this constant sets, named as in `sweep --vary`.
    pub sets: Option<String>,
}

fn default_steps() -> u32 {
    11
}

/// The rows of one published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    /// Name of the figure.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Absolute tolerance for the model's value.
    #[serde(default)]
    pub tolerance: f64,
    /// Tolerance for the model's value, as a fraction of the published value. The larger of
    /// `tolerance` and `relative` applies.
    #[serde(default)]
    pub relative: f64,
    /// Column of the sweep's results that the rows are compared with. Used only if a scenario
    /// models the case.
    pub measure: Option<String>,
    /// Factor by which the column is multiplied before the comparison.
    #[serde(default = "one")]
    pub scale: f64,
    /// Whether the column is a count, to be divided by the number of simulated seconds.
    #[serde(default)]
    pub per_second: bool,
    /// The rows, in the order of the file.
    pub rows: Vec<Published>,
}

fn one() -> f64 {
    1.0
}

/// A row of a series. Its value is published, derived from published values, or known only from the
/// model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Label of the row, such as a tick rate or a host. The model derives the row's setup from it.
    pub at: String,
    /// The published fact, in our words.
    #[serde(alias = "quote")]
    pub fact: Option<String>,
    /// Where the fact stands in the source.
    pub place: Option<String>,
    /// The published value.
    pub value: Option<f64>,
    /// The published range. The model matches if its value is anywhere within the range.
    pub range: Option<[f64; 2]>,
    /// A value derived from published numbers. If present, the model is compared with it instead of
    /// with the published value.
    pub derived: Option<Derived>,
    /// Tolerance for this row, which overrides the tolerances of the series.
    pub tolerance: Option<f64>,
    /// Whether the model's constants are fitted to this row.
    #[serde(default)]
    pub fit: bool,
    /// Constants that were chosen by looking at this row.
    #[serde(default)]
    pub chosen: Vec<String>,
    /// Whether the model's value follows from the source's own arithmetic, or from other rows.
    #[serde(default)]
    pub identity: bool,
    /// Why the model misses this row, or `None` if it should match.
    pub fails: Option<String>,
}

impl CaseFile {
    /// Parses a case file. `text` is its contents, and `file` its name for error messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, CaseError> {
        let case: Self = toml::from_str(text).map_err(|error| CaseError {
            file: file.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            why: error.message().replace('\n', " "),
        })?;
        case.check().map_err(|fault| CaseError {
            file: file.to_owned(),
            line: line_of(text, fault.byte(text)),
            why: fault.why,
        })?;
        Ok(case)
    }

    /// Returns a copy with only the rows that `wanted` selects.
    #[must_use]
    pub fn with_rows(&self, wanted: impl Fn(&Published) -> bool) -> Self {
        let mut file = self.clone();
        for series in &mut file.series {
            series.rows.retain(&wanted);
        }
        file
    }

    /// Returns a copy with only the calibration rows.
    #[must_use]
    pub fn calibrating(&self) -> Self {
        self.with_rows(|row| row.fit)
    }

    /// Returns the series called `name`, or `None` if there is no such series.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// Returns the row of `series` with the label `at`, or `None` if the series lacks it.
    pub fn row(&self, series: &str, at: &str) -> Option<&Published> {
        let rows = &self.series(series)?.rows;
        rows.iter().find(|row| row.at == at)
    }

    /// Returns all rows, each with its series.
    pub fn rows(&self) -> impl Iterator<Item = (&Series, &Published)> {
        self.series
            .iter()
            .flat_map(|series| series.rows.iter().map(move |row| (series, row)))
    }

    /// Returns the values of all parameters.
    pub fn values(&self) -> Values {
        let values = self
            .parameters
            .iter()
            .map(|(name, parameter)| (name.clone(), parameter.value));
        Values(values.collect())
    }
}

/// Returns the number, counted from 1, of the line that contains the byte at offset `byte`.
fn line_of(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or(text).matches('\n').count() + 1
}

/// Replaces infinite ends of a range with `None`.
fn ends(range: [f64; 2]) -> Ends {
    range.map(|end| Some(end).filter(|end| end.is_finite()))
}

impl Published {
    /// Returns the published value as a range. Returns `None` if no value was published.
    pub fn published(&self) -> Option<[f64; 2]> {
        self.range.or_else(|| self.value.map(|value| [value; 2]))
    }

    /// Same as [`published`](Self::published), but with `None` for infinite ends.
    pub fn published_ends(&self) -> Option<Ends> {
        self.published().map(ends)
    }

    /// Returns the derived range, with `None` for infinite ends.
    pub fn derived_ends(&self) -> Option<Ends> {
        self.derived.as_ref().map(|derived| ends(derived.range()))
    }

    /// Returns the range that the model should hit: the derived range if there is one, otherwise
    /// the published one. Returns `None` if there is neither.
    pub fn target(&self) -> Option<[f64; 2]> {
        self.derived
            .as_ref()
            .map(Derived::range)
            .or_else(|| self.published())
    }

    /// Returns the midpoint of the target range, or `None` without a target.
    pub fn middle(&self) -> Option<f64> {
        self.target().map(|[low, high]| f64::midpoint(low, high))
    }

    /// Returns how far a modelled figure is from the target range: negative below the range, and 0
    /// within it. Differences that only rounding explains count as 0. Returns `None` without a
    /// target.
    pub fn residual(&self, modelled: f64) -> Option<f64> {
        const ROUNDING: f64 = 1e-12;
        self.target().map(|[low, high]| {
            let residual = modelled - modelled.max(low).min(high);
            if residual.abs() > ROUNDING * modelled.abs() {
                residual
            } else {
                0.0
            }
        })
    }
}

impl Series {
    /// Returns the tolerance for the model's value in `row`.
    pub fn allowed(&self, row: &Published) -> f64 {
        let series_tolerance = || {
            let middle = row.middle().filter(|middle| middle.is_finite());
            self.tolerance
                .max(self.relative * middle.unwrap_or_default().abs())
        };
        row.tolerance.unwrap_or_else(series_tolerance)
    }
}

/// A model's constants for one run, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(pub BTreeMap<String, f64>);

impl Values {
    /// Returns the constant called `name`.
    ///
    /// # Panics
    /// Panics if the case file does not define the constant. A test runs every case to catch this.
    pub fn get(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(&value) => value,
            None => panic!("the case's file has no parameter {name}"),
        }
    }

    /// Returns a copy in which constant `name` is `value`.
    #[must_use]
    pub fn with(&self, name: &str, value: f64) -> Self {
        let mut values = self.clone();
        values.0.insert(name.to_owned(), value);
        values
    }
}
