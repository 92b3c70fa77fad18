//! Checks of a case file that go beyond its syntax.

use std::collections::BTreeSet;

use super::{CaseFile, Parameter, Published, Series};

/// Maximum number of rows in a file. Each row needs its own model run.
const MAX_ROWS: usize = 1_000;

/// A problem, with text fragments that locate it. Each fragment is searched for after the previous
/// one.
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

    /// Byte offset of the problem in `text`, as precisely as the fragments can be found.
    pub(super) fn byte(&self, text: &str) -> usize {
        self.places.iter().fold(0, |from, place| {
            text[from..].find(place).map_or(from, |byte| from + byte)
        })
    }
}

impl CaseFile {
    /// Checks everything that serde cannot check.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (name, parameter) in &self.parameters {
            self.check_parameter(name, parameter).map_err(|why| {
                Fault::new([format!("[parameters.{name}]")], format!("{name}: {why}"))
            })?;
        }
        let rows = self.rows().count();
        if rows > MAX_ROWS {
            let why = format!("too many rows ({rows}): give at most {MAX_ROWS}");
            return Err(Fault::new(["[[series".to_owned()], why));
        }
        let mut names = BTreeSet::new();
        for series in &self.series {
            let place = format!("name = \"{}\"", series.name);
            self.check_series(series).map_err(|why| {
                Fault::new([place.clone()], format!("series {}: {why}", series.name))
            })?;
            if !names.insert(&series.name) {
                let why = format!("series {}: duplicate name", series.name);
                return Err(Fault::new([place], why));
            }
            let mut rows = BTreeSet::new();
            for row in &series.rows {
                let row_fault = |why: String| {
                    let places = [place.clone(), format!("at = \"{}\"", row.at)];
                    Fault::new(places, format!("{} at {}: {why}", series.name, row.at))
                };
                check_row(row).map_err(row_fault)?;
                if !rows.insert(&row.at) {
                    return Err(row_fault("duplicate row".to_owned()));
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
            let why = "some parameters are to be fitted, but no row has `fit = true`".to_owned();
            return Err(Fault::new(["[parameters".to_owned()], why));
        }
        if let Some(design) = &self.design {
            design
                .check()
                .map_err(|why| Fault::new(["[design".to_owned()], why))?;
        }
        Ok(())
    }

    fn check_parameter(&self, name: &str, parameter: &Parameter) -> Result<(), String> {
        if !parameter.value.is_finite() {
            return Err("its value must be finite".to_owned());
        }
        if let Some([low, high]) = parameter.fit {
            let goes_up = low.is_finite() && high.is_finite() && low < high;
            if !goes_up || !(2..=1000).contains(&parameter.steps) {
                return Err(format!(
                    "cannot fit from {low} to {high} in {} steps: give an ascending range, and 2 \
                     to 1000 steps",
                    parameter.steps
                ));
            }
            if !(low..=high).contains(&parameter.value) {
                return Err(format!("its value is out of range: choose {low} to {high}"));
            }
            if parameter.quote.is_some() {
                return Err("a published value cannot be fitted".to_owned());
            }
        } else if parameter.from.is_empty() && parameter.quote.is_none() {
            return Err(
                "its origin is missing: use `quote` if published, `fit` if fitted, `from` if \
                 assumed"
                    .to_owned(),
            );
        }
        if let Some(value) = parameter.others.iter().find(|value| !value.is_finite()) {
            return Err(format!("try: {value} must be finite"));
        }
        let unknown = parameter.refit.iter().find(|other| {
            let known = self.parameters.get(*other);
            *other == name || known.is_none_or(|known| known.fit.is_none())
        });
        match unknown {
            Some(other) => Err(format!("refit: `{other}` is not another fitted parameter")),
            None => Ok(()),
        }
    }

    fn check_series(&self, series: &Series) -> Result<(), String> {
        for (name, tolerance) in [
            ("tolerance", series.tolerance),
            ("relative", series.relative),
        ] {
            if !is_tolerance(tolerance) {
                return Err(format!(
                    "{name} is {tolerance}, but must be a number of at least 0"
                ));
            }
        }
        if !series.scale.is_finite() {
            return Err(format!(
                "scale is {}, but must be a finite number",
                series.scale
            ));
        }
        if series.rows.is_empty() {
            return Err("no rows".to_owned());
        }
        if series.measure.is_some() && self.model.is_none() {
            return Err("`measure` needs a [model] with a scenario".to_owned());
        }
        Ok(())
    }
}

fn check_row(row: &Published) -> Result<(), String> {
    if row.value.is_some() && row.range.is_some() {
        return Err("give either a value or a range, not both".to_owned());
    }
    if let Some(value) = row.value.filter(|value| !value.is_finite()) {
        return Err(format!("its value is {value}, but must be a number"));
    }
    if let Some([low, high]) = row.published()
        && (low > high || low.is_nan() || high.is_nan())
    {
        return Err(format!(
            "invalid range {low} to {high}: give the smaller number first"
        ));
    }
    if row.fit && row.target().is_none() {
        return Err("it has `fit = true`, but no number to fit to".to_owned());
    }
    match row.tolerance.filter(|&tolerance| !is_tolerance(tolerance)) {
        Some(tolerance) => Err(format!(
            "its tolerance is {tolerance}, but must be a number of at least 0"
        )),
        None => Ok(()),
    }
}

fn is_tolerance(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
