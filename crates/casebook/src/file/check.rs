//! Checks a case file for errors that valid syntax does not rule out.

use std::collections::BTreeSet;

use super::error::CaseFault;
use super::{CaseFile, Parameter, Published, Series};

/// Maximum number of rows in a file. The limit exists because each row can require its own run of
/// the model.
pub(super) const MAX_ROWS: usize = 1_000;

/// A problem, with text fragments that locate it. Each fragment is searched for from where the one
/// before was found.
pub(super) struct Fault {
    places: Vec<String>,
    pub(super) why: String,
}

impl Fault {
    fn new<const N: usize>(places: [String; N], why: String) -> Self {
        Self {
            places: places.into(),
            why,
        }
    }

    /// Returns the byte offset of the problem in `text`. If a fragment cannot be found, returns the
    /// offset of the one before.
    pub(super) fn byte(&self, text: &str) -> usize {
        self.places.iter().fold(0, |from, place| {
            text[from..].find(place).map_or(from, |byte| from + byte)
        })
    }
}

impl CaseFile {
    /// Checks everything that serde cannot check while parsing the file.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (name, parameter) in &self.parameters {
            self.check_parameter(name, parameter).map_err(|why| {
                Fault::new([format!("[parameters.{name}]")], format!("{name}: {why}"))
            })?;
        }
        let rows = self.rows().count();
        if rows > MAX_ROWS {
            let why = CaseFault::TooManyRows { rows }.to_string();
            return Err(Fault::new(["[[series".to_owned()], why));
        }
        let mut names = BTreeSet::new();
        for series in &self.series {
            let place = format!("name = \"{}\"", series.name);
            let series_fault = |why: CaseFault| {
                Fault::new([place.clone()], format!("series {}: {why}", series.name))
            };
            self.check_series(series).map_err(series_fault)?;
            if !names.insert(&series.name) {
                return Err(series_fault(CaseFault::DuplicateSeries));
            }
            let mut rows = BTreeSet::new();
            for row in &series.rows {
                let row_fault = |why: CaseFault| {
                    let places = [place.clone(), format!("at = \"{}\"", row.at)];
                    Fault::new(places, format!("{} at {}: {why}", series.name, row.at))
                };
                check_row(row).map_err(row_fault)?;
                self.check_chosen(row).map_err(row_fault)?;
                if !rows.insert(&row.at) {
                    return Err(row_fault(CaseFault::DuplicateRow));
                }
            }
        }
        let fits = self.rows().any(|(_, row)| row.fit);
        if !fits
            && self
                .parameters
                .values()
                .any(|parameter| parameter.fit.is_some())
        {
            let why = CaseFault::NothingToFit.to_string();
            return Err(Fault::new(["[parameters".to_owned()], why));
        }
        if let Some(design) = &self.design {
            design
                .check()
                .map_err(|why| Fault::new(["[design".to_owned()], why.to_string()))?;
        }
        Ok(())
    }

    fn check_parameter(&self, name: &str, parameter: &Parameter) -> Result<(), CaseFault> {
        if !parameter.value.is_finite() {
            return Err(CaseFault::ParameterNotFinite);
        }
        if let Some([low, high]) = parameter.fit {
            let goes_up = low.is_finite() && high.is_finite() && low < high;
            if !goes_up || !(2..=1000).contains(&parameter.steps) {
                return Err(CaseFault::FitRange {
                    low,
                    high,
                    steps: parameter.steps,
                });
            }
            if !(low..=high).contains(&parameter.value) {
                return Err(CaseFault::OutsideFit { low, high });
            }
            if parameter.fact.is_some() {
                return Err(CaseFault::PublishedFit);
            }
        } else if parameter.from.is_empty() && parameter.fact.is_none() {
            return Err(CaseFault::NoOrigin);
        }
        if parameter.others.len() > MAX_ROWS {
            return Err(CaseFault::TooManyTried {
                values: parameter.others.len(),
            });
        }
        if let Some(&value) = parameter.others.iter().find(|value| !value.is_finite()) {
            return Err(CaseFault::TryNotFinite(value));
        }
        let unknown = parameter.refit.iter().find(|other| {
            let known = self.parameters.get(*other);
            *other == name || known.is_none_or(|known| known.fit.is_none())
        });
        match unknown {
            Some(other) => Err(CaseFault::Refit(other.clone())),
            None => Ok(()),
        }
    }

    /// Checks that the constants that were chosen by looking at `row` are known and not fitted.
    fn check_chosen(&self, row: &Published) -> Result<(), CaseFault> {
        let is_chosen = |name: &&String| {
            let known = self.parameters.get(*name);
            known.is_some_and(|known| known.fit.is_none() && known.fact.is_none())
        };
        match row.chosen.iter().find(|name| !is_chosen(name)) {
            Some(name) => Err(CaseFault::Chosen(name.clone())),
            None => Ok(()),
        }
    }

    fn check_series(&self, series: &Series) -> Result<(), CaseFault> {
        for (key, value) in [
            ("tolerance", series.tolerance),
            ("relative", series.relative),
        ] {
            if !is_tolerance(value) {
                return Err(CaseFault::SeriesTolerance { key, value });
            }
        }
        if !series.scale.is_finite() {
            return Err(CaseFault::Scale(series.scale));
        }
        if series.rows.is_empty() {
            return Err(CaseFault::NoRows);
        }
        if series.measure.is_some() && self.model.is_none() {
            return Err(CaseFault::NoModel);
        }
        Ok(())
    }
}

fn check_row(row: &Published) -> Result<(), CaseFault> {
    if row.value.is_some() && row.range.is_some() {
        return Err(CaseFault::ValueAndRange);
    }
    if let Some(value) = row.value.filter(|value| !value.is_finite()) {
        return Err(CaseFault::RowNotFinite(value));
    }
    if let Some([low, high]) = row.published()
        && (low > high || low.is_nan() || high.is_nan())
    {
        return Err(CaseFault::RowRange { low, high });
    }
    if row.fit && row.target().is_none() {
        return Err(CaseFault::NoTarget);
    }
    let kinds = [row.fit, row.identity, !row.chosen.is_empty()];
    if kinds.iter().filter(|&&kind| kind).count() > 1 {
        return Err(CaseFault::Kinds);
    }
    match row.tolerance.filter(|&tolerance| !is_tolerance(tolerance)) {
        Some(tolerance) => Err(CaseFault::RowTolerance(tolerance)),
        None => Ok(()),
    }
}

fn is_tolerance(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
