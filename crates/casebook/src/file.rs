//! Case files: published figures, figures derived from them, and the model's parameters and
//! tolerances. `docs/reference/case.md` describes the format.

mod check;
mod design;
mod error;
mod formula;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use ticktax_model::case::{Ends, Remark};

pub use design::Design;
pub use error::CaseError;
pub use formula::Derived;

/// A published investigation, parsed from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaseFile {
    /// Name of the case: the file name without `.toml`.
    pub name: String,
    /// One-line summary.
    pub title: String,
    /// Place and date of publication.
    pub source: String,
    /// The mechanism that the model reproduces.
    pub mechanism: String,
    /// The scenario that models the case, or `None` if a module does.
    pub model: Option<ScenarioModel>,
    /// Constants of the model.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// Published figures.
    #[serde(default)]
    pub series: Vec<Series>,
    /// On/off switches of a published experiment, and the effects that they enable.
    pub design: Option<Design>,
    /// Published observations that the model does not reproduce, with the reasons.
    #[serde(default)]
    pub not_reproduced: Vec<Remark>,
    /// Inconsistencies within the source.
    #[serde(default)]
    pub oddities: Vec<Remark>,
}

/// A simulator scenario used as a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioModel {
    /// Path of the scenario file, relative to the case file's directory.
    pub scenario: String,
    /// Scenario parameter that a row's `at` sets, named as in `sweep --vary`. If `None`, all rows
    /// share one setup.
    pub row: Option<String>,
}

/// A constant of the model: published, fitted or assumed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value. For a fitted constant, this is the last fit's result.
    pub value: f64,
    /// Unit of the value.
    #[serde(default)]
    pub unit: String,
    /// The source's wording, for a published constant.
    pub quote: Option<String>,
    /// Why this value was chosen, for an assumed constant.
    #[serde(default)]
    pub from: String,
    /// Search range, for a fitted constant.
    pub fit: Option<[f64; 2]>,
    /// Number of values to try before the search narrows, from 2 to 1000.
    #[serde(default = "default_steps")]
    pub steps: u32,
    /// Whether the value must be an integer.
    #[serde(default)]
    pub whole: bool,
    /// Alternative values for the sensitivity analysis.
    #[serde(default, rename = "try")]
    pub others: Vec<f64>,
    /// Parameters to fit again for each alternative value.
    #[serde(default)]
    pub refit: Vec<String>,
    /// Scenario parameter that this constant sets, named as in `sweep --vary`.
    pub sets: Option<String>,
}

fn default_steps() -> u32 {
    11
}

/// Rows of one figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    /// Name of the figure.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Absolute tolerance for the model.
    #[serde(default)]
    pub tolerance: f64,
    /// Tolerance for the model, as a fraction of the published value. The larger of the two
    /// tolerances applies.
    #[serde(default)]
    pub relative: f64,
    /// Column of the sweep's results to compare with, if the model is a scenario.
    pub measure: Option<String>,
    /// Factor by which to multiply the column.
    #[serde(default = "one")]
    pub scale: f64,
    /// Whether the column is a count that must be divided by the number of simulated seconds.
    #[serde(default)]
    pub per_second: bool,
    /// The rows, in file order.
    pub rows: Vec<Published>,
}

fn one() -> f64 {
    1.0
}

/// A row that is published, derived, or filled in only by the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Label of the row, such as a tick rate or a host. The model parses it.
    pub at: String,
    /// The source's wording.
    pub quote: Option<String>,
    /// The published value.
    pub value: Option<f64>,
    /// The published range. Every value within it matches.
    pub range: Option<[f64; 2]>,
    /// A value derived from published numbers. If present, the model is judged by it.
    pub derived: Option<Derived>,
    /// Tolerance for this row, which overrides the series' tolerances.
    pub tolerance: Option<f64>,
    /// Whether the row calibrates the model.
    #[serde(default)]
    pub fit: bool,
    /// Why the model misses this row, if the miss is known.
    pub fails: Option<String>,
}

impl CaseFile {
    /// Parses `text`, the contents of `file`.
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

    /// A copy that contains only the rows selected by `wanted`.
    #[must_use]
    pub fn with_rows(&self, wanted: impl Fn(&Published) -> bool) -> Self {
        let mut file = self.clone();
        for series in &mut file.series {
            series.rows.retain(&wanted);
        }
        file
    }

    /// A copy that contains only the calibration rows.
    #[must_use]
    pub fn calibrating(&self) -> Self {
        self.with_rows(|row| row.fit)
    }

    /// Finds a series by name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// Finds a row by its series and label.
    pub fn row(&self, series: &str, at: &str) -> Option<&Published> {
        let rows = &self.series(series)?.rows;
        rows.iter().find(|row| row.at == at)
    }

    /// All rows, each with its series.
    pub fn rows(&self) -> impl Iterator<Item = (&Series, &Published)> {
        self.series
            .iter()
            .flat_map(|series| series.rows.iter().map(move |row| (series, row)))
    }

    /// The values of all parameters.
    pub fn values(&self) -> Values {
        let values = self
            .parameters
            .iter()
            .map(|(name, parameter)| (name.clone(), parameter.value));
        Values(values.collect())
    }
}

/// Line number (from 1) of a byte offset.
fn line_of(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or(text).matches('\n').count() + 1
}

/// Replaces infinite ends with `None`.
fn ends(range: [f64; 2]) -> Ends {
    range.map(|end| Some(end).filter(|end| end.is_finite()))
}

impl Published {
    /// The published value as a range.
    pub fn published(&self) -> Option<[f64; 2]> {
        self.range.or_else(|| self.value.map(|value| [value; 2]))
    }

    /// Like [`published`](Self::published), with infinite ends as `None`.
    pub fn published_ends(&self) -> Option<Ends> {
        self.published().map(ends)
    }

    /// The derived range, with infinite ends as `None`.
    pub fn derived_ends(&self) -> Option<Ends> {
        self.derived.as_ref().map(|derived| ends(derived.range()))
    }

    /// The range that the model should hit: the derived one if there is one, otherwise the
    /// published one.
    pub fn target(&self) -> Option<[f64; 2]> {
        self.derived
            .as_ref()
            .map(Derived::range)
            .or_else(|| self.published())
    }

    /// Midpoint of the target range.
    pub fn middle(&self) -> Option<f64> {
        self.target().map(|[low, high]| f64::midpoint(low, high))
    }

    /// Signed distance of a modelled figure from the target range: zero inside it, negative below
    /// it.
    pub fn residual(&self, modelled: f64) -> Option<f64> {
        self.target()
            .map(|[low, high]| modelled - modelled.max(low).min(high))
    }
}

impl Series {
    /// Tolerance for the model in `row`.
    pub fn allowed(&self, row: &Published) -> f64 {
        let series_tolerance = || {
            let middle = row.middle().filter(|middle| middle.is_finite());
            self.tolerance
                .max(self.relative * middle.unwrap_or_default().abs())
        };
        row.tolerance.unwrap_or_else(series_tolerance)
    }
}

/// A model's constants by name, for one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(pub BTreeMap<String, f64>);

impl Values {
    /// Looks up a constant by name.
    ///
    /// # Panics
    /// Panics if the case file does not define the constant. A test runs every case to catch this.
    pub fn get(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(&value) => value,
            None => panic!("the case's file has no parameter {name}"),
        }
    }

    /// A copy in which constant `name` is `value`.
    #[must_use]
    pub fn with(&self, name: &str, value: f64) -> Self {
        let mut values = self.clone();
        values.0.insert(name.to_owned(), value);
        values
    }
}
