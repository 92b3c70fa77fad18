//! The file of a case: what was published, and what is to be made of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use ticktax_model::case::{
    Basis, CaseHead, CaseNotes, CaseSheet, Constant, PublishedRow, PublishedSeries, Remark,
};

/// A published investigation, as its file tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// Its name: the file's, without `.toml`.
    pub name: String,
    /// What it is about, in a line.
    pub title: String,
    /// Where and when it was published.
    pub source: String,
    /// How it comes about, as far as the model says.
    pub mechanism: String,
    /// The model's constants.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// What was published.
    #[serde(default)]
    pub series: Vec<Series>,
    /// What the model does not give, and why.
    #[serde(default)]
    pub underivable: Vec<Remark>,
    /// What is odd about the published figures.
    #[serde(default)]
    pub artefacts: Vec<Remark>,
}

/// A constant of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its value; of one that is fitted, what the fit came to.
    pub value: f64,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
    /// Where it is from: a source's own words, an assumption. A fitted one needs none.
    #[serde(default)]
    pub from: String,
    /// Where it is to be found, from and to, where it is fitted.
    pub fit: Option<[f64; 2]>,
    /// How many values of the range are tried before the search closes in; 2 to 1000.
    #[serde(default = "default_steps")]
    pub steps: u16,
}

fn default_steps() -> u16 {
    11
}

/// Rows of one quantity.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Where its figures are from.
    #[serde(default)]
    pub basis: Basis,
    /// How near the model must come: this much either way.
    #[serde(default)]
    pub tolerance: f64,
    /// Or this share of what was published.
    #[serde(default)]
    pub relative: f64,
    /// The rows.
    pub rows: Vec<Published>,
}

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it is for: a tick rate, a host. The model reads it.
    pub at: String,
    /// The figure.
    pub value: Option<f64>,
    /// Or the range that was published: within it counts as met.
    pub range: Option<[f64; 2]>,
    /// Whether it calibrates.
    #[serde(default)]
    pub fit: bool,
    /// Where the model is known to fail, why.
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
        case.check().map_err(|(place, why)| CaseError {
            file: file.to_owned(),
            line: line_of(text, text.find(&place).unwrap_or(0)),
            why,
        })?;
        Ok(case)
    }

    /// What serde cannot see. An error comes with the text that it is near to.
    fn check(&self) -> Result<(), (String, String)> {
        for (name, parameter) in &self.parameters {
            let place = format!("[parameters.{name}]");
            if let Some([low, high]) = parameter.fit
                && (low >= high || !(2..=1000).contains(&parameter.steps))
            {
                let why = format!("{name} cannot be fitted from {low} to {high}");
                return Err((place, why));
            }
            if parameter.fit.is_none() && parameter.from.is_empty() {
                return Err((place, format!("{name} is neither fitted nor from anywhere")));
            }
        }
        for series in &self.series {
            let place = format!("name = \"{}\"", series.name);
            if series.tolerance < 0.0 || series.relative < 0.0 {
                return Err((place, format!("{}: a tolerance below 0", series.name)));
            }
            for row in &series.rows {
                let place = format!("at = \"{}\"", row.at);
                let told = usize::from(row.value.is_some()) + usize::from(row.range.is_some());
                if told != 1 || row.range.is_some_and(|[low, high]| low > high) {
                    let why = format!("{} {}: a value or a range", series.name, row.at);
                    return Err((place, why));
                }
                if row.fit && row.fails.is_some() {
                    let why = format!("{} {}: a row that fails calibrates", series.name, row.at);
                    return Err((place, why));
                }
            }
        }
        let fits = self
            .series
            .iter()
            .flat_map(|series| &series.rows)
            .any(|row| row.fit);
        if !fits
            && self
                .parameters
                .values()
                .any(|parameter| parameter.fit.is_some())
        {
            let why = "parameters are to be fitted, and no row calibrates".to_owned();
            return Err(("[parameters".to_owned(), why));
        }
        Ok(())
    }

    /// The same case with nothing but the rows that calibrate.
    #[must_use]
    pub fn calibrating(&self) -> Self {
        let mut file = self.clone();
        for series in &mut file.series {
            series.rows.retain(|row| row.fit);
        }
        file
    }

    /// A series by name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
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

/// As pages have it.
impl CaseFile {
    /// Which case it is.
    pub fn head(&self) -> CaseHead {
        CaseHead {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            mechanism: self.mechanism.clone(),
        }
    }

    /// What there is to say beside its figures.
    pub fn notes(&self) -> CaseNotes {
        CaseNotes {
            underivable: self.underivable.clone(),
            artefacts: self.artefacts.clone(),
        }
    }

    /// The constants of its model.
    pub fn constants(&self) -> Vec<Constant> {
        let constants = self.parameters.iter().map(|(name, it)| Constant {
            name: name.clone(),
            value: it.value,
            unit: it.unit.clone(),
            from: it.from.clone(),
            fit: it.fit,
        });
        constants.collect()
    }

    /// All that it says.
    pub fn sheet(&self) -> CaseSheet {
        let row = |row: &Published| PublishedRow {
            at: row.at.clone(),
            middle: row.middle(),
            range: row.range,
            fit: row.fit,
        };
        let series = self.series.iter().map(|series| PublishedSeries {
            name: series.name.clone(),
            unit: series.unit.clone(),
            rows: series.rows.iter().map(row).collect(),
        });
        CaseSheet {
            head: self.head(),
            constants: self.constants(),
            series: series.collect(),
            notes: self.notes(),
        }
    }
}

/// The line that a byte is in, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    text[..byte.min(text.len())].matches('\n').count() + 1
}

impl Published {
    /// The figure, or the middle of the range.
    pub fn middle(&self) -> f64 {
        match (self.value, self.range) {
            (Some(value), _) => value,
            (_, Some([low, high])) => f64::midpoint(low, high),
            _ => f64::NAN,
        }
    }

    /// By how much a modelled figure is off: nothing within a published range.
    pub fn residual(&self, modelled: f64) -> f64 {
        match (self.value, self.range) {
            (Some(value), _) => modelled - value,
            (_, Some([low, high])) => modelled - modelled.clamp(low, high),
            _ => f64::NAN,
        }
    }
}

impl Series {
    /// How far a modelled figure may be off this row.
    pub fn allowed(&self, row: &Published) -> f64 {
        self.tolerance.max(self.relative * row.middle().abs())
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

#[cfg(test)]
mod tests {
    use super::CaseFile;

    fn error(text: &str) -> (usize, String) {
        let error = CaseFile::parse("x.toml", text).unwrap_err();
        (error.line, error.why)
    }

    const HEAD: &str = "name = \"x\"\ntitle = \"\"\nsource = \"\"\nmechanism = \"\"\n";

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let (line, why) = error(&format!("{HEAD}colour = 1\n"));
        assert_eq!(line, 5);
        assert!(why.contains("colour"), "{why}");
        let parameter = "[parameters.a]\nvalue = 1\nfit = [2, 1]\n";
        let (line, why) = error(&format!("{HEAD}{parameter}"));
        assert_eq!(line, 5);
        assert!(why.contains("from 2 to 1"), "{why}");
        let rows =
            "[[series]]\nname = \"s\"\nunit = \"\"\nrows = [\n  { at = \"1\", fit = true },\n]";
        let (line, why) = error(&format!("{HEAD}{rows}"));
        assert_eq!(line, 9);
        assert!(why.contains("a value or a range"), "{why}");
        let (_, why) = error(&format!("{HEAD}[parameters.a]\nvalue = 1\nfit = [1, 2]\n"));
        assert!(why.contains("no row calibrates"), "{why}");
    }
}
