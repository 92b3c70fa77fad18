//! The file of a case: what was published, what follows from it, and what is to be made of it.
//! `docs/reference/case.md` says how to write one.

mod check;
mod design;
mod formula;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use ticktax_model::case::{Ends, Remark};

pub use design::Design;
pub use formula::Derived;

/// A published investigation, as its file tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaseFile {
    /// Its name: the file's, without `.toml`.
    pub name: String,
    /// What it is about, in a line.
    pub title: String,
    /// Where and when it was published.
    pub source: String,
    /// How it comes about, as far as the model says.
    pub mechanism: String,
    /// The scenario that is its model, for a case without a module.
    pub model: Option<ScenarioModel>,
    /// The model's constants.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// What was published.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Switches that were, or could have been, tried one by one.
    pub design: Option<Design>,
    /// What the model does not reproduce, and why.
    #[serde(default)]
    pub not_reproduced: Vec<Remark>,
    /// What is odd about the source.
    #[serde(default)]
    pub oddities: Vec<Remark>,
}

/// A model that is a scenario of the simulator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioModel {
    /// The scenario's file, from the case's folder.
    pub scenario: String,
    /// What of it the place of a row sets, a name of `sweep --vary`; every row is the same machine
    /// without it.
    pub row: Option<String>,
}

/// A constant of a model: published, fitted, or assumed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its value; of one that is fitted, what the fit came to.
    pub value: f64,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
    /// Where it is published, in the source's words.
    pub quote: Option<String>,
    /// Why it is what it is, where we chose it.
    #[serde(default)]
    pub from: String,
    /// Where it is to be found, from and to, where it is fitted.
    pub fit: Option<[f64; 2]>,
    /// How many values of the range are tried before the search closes in; 2 to 1000.
    #[serde(default = "default_steps")]
    pub steps: u32,
    /// Whether it is a whole number.
    #[serde(default)]
    pub whole: bool,
    /// Other values to try, to see what depends on it.
    #[serde(default, rename = "try")]
    pub others: Vec<f64>,
    /// The parameters that are fitted anew at each of these.
    #[serde(default)]
    pub refit: Vec<String>,
    /// What of the scenario it sets, a name of `sweep --vary`.
    pub sets: Option<String>,
}

fn default_steps() -> u32 {
    11
}

/// Rows of one quantity.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How near the model must come: this much either way.
    #[serde(default)]
    pub tolerance: f64,
    /// Or this share of what was published.
    #[serde(default)]
    pub relative: f64,
    /// Which column of a sweep is compared, where the model is a scenario.
    pub measure: Option<String>,
    /// What that is multiplied by.
    #[serde(default = "one")]
    pub scale: f64,
    /// Whether it is a count that is divided by the simulated time in s.
    #[serde(default)]
    pub per_second: bool,
    /// The rows.
    pub rows: Vec<Published>,
}

fn one() -> f64 {
    1.0
}

/// One row: what was published, what follows from it, or neither, where only the model says
/// something.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it is for: a tick rate, a host. The model reads it.
    pub at: String,
    /// What was published, in the source's words.
    pub quote: Option<String>,
    /// The number that was published.
    pub value: Option<f64>,
    /// Or the range: within it counts as met.
    pub range: Option<[f64; 2]>,
    /// What follows from published numbers, which is then what the model is compared with.
    pub derived: Option<Derived>,
    /// How near the model must come in this row.
    pub tolerance: Option<f64>,
    /// Whether it calibrates.
    #[serde(default)]
    pub fit: bool,
    /// Where the model is known to miss it, why.
    pub fails: Option<String>,
}

/// Why a file is no case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct CaseError {
    /// The file.
    pub file: String,
    /// The line in it, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl CaseFile {
    /// Reads a case from the text of `file`.
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

    /// The same case with nothing but these rows.
    #[must_use]
    pub fn with_rows(&self, wanted: impl Fn(&Published) -> bool) -> Self {
        let mut file = self.clone();
        for series in &mut file.series {
            series.rows.retain(&wanted);
        }
        file
    }

    /// The same case with nothing but the rows that calibrate.
    #[must_use]
    pub fn calibrating(&self) -> Self {
        self.with_rows(|row| row.fit)
    }

    /// A series by name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// A row by series and place.
    pub fn row(&self, series: &str, at: &str) -> Option<&Published> {
        let rows = &self.series(series)?.rows;
        rows.iter().find(|row| row.at == at)
    }

    /// All rows with their series.
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
            .map(|(name, it)| (name.clone(), it.value));
        Values(values.collect())
    }
}

/// The line that a byte is in, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or(text).matches('\n').count() + 1
}

/// A range without the ends that are infinitely far.
fn ends(range: [f64; 2]) -> Ends {
    range.map(|end| Some(end).filter(|end| end.is_finite()))
}

impl Published {
    /// The number that was published, from and to.
    pub fn published(&self) -> Option<[f64; 2]> {
        self.range.or_else(|| self.value.map(|value| [value; 2]))
    }

    /// The same as pages have it.
    pub fn published_ends(&self) -> Option<Ends> {
        self.published().map(ends)
    }

    /// What is derived, as pages have it.
    pub fn derived_ends(&self) -> Option<Ends> {
        self.derived.as_ref().map(|it| ends(it.range()))
    }

    /// What the model is compared with, from and to: what is derived, or else what was published.
    pub fn target(&self) -> Option<[f64; 2]> {
        self.derived
            .as_ref()
            .map(Derived::range)
            .or_else(|| self.published())
    }

    /// The middle of that.
    pub fn middle(&self) -> Option<f64> {
        self.target().map(|[low, high]| f64::midpoint(low, high))
    }

    /// By how much a modelled figure is off: nothing within a range.
    pub fn residual(&self, modelled: f64) -> Option<f64> {
        self.target()
            .map(|[low, high]| modelled - modelled.max(low).min(high))
    }
}

impl Series {
    /// How far a modelled figure may be off this row.
    pub fn allowed(&self, row: &Published) -> f64 {
        let of_series = || {
            let middle = row.middle().filter(|middle| middle.is_finite());
            self.tolerance
                .max(self.relative * middle.unwrap_or_default().abs())
        };
        row.tolerance.unwrap_or_else(of_series)
    }
}

/// The constants that a model runs with.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(pub BTreeMap<String, f64>);

impl Values {
    /// A constant by name.
    ///
    /// # Panics
    /// When the case's file lacks it: a test runs every case.
    pub fn get(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(&value) => value,
            None => panic!("the case's file has no parameter {name}"),
        }
    }

    /// The same, with one of them changed.
    #[must_use]
    pub fn with(&self, name: &str, value: f64) -> Self {
        let mut values = self.clone();
        values.0.insert(name.to_owned(), value);
        values
    }
}
