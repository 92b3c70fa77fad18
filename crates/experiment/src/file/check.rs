//! What is wrong with a case's file that its syntax cannot show.

use std::collections::BTreeSet;

use super::{CaseFile, Parameter, Published, Series};

/// The most rows of a file: each is a run of the model.
const MAX_ROWS: usize = 1_000;

/// What is wrong, and near which text: each is looked for after the one before.
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

    /// Where in the text it is; as far as it is found.
    pub(super) fn byte(&self, text: &str) -> usize {
        self.places.iter().fold(0, |from, place| {
            text[from..].find(place).map_or(from, |byte| from + byte)
        })
    }
}

impl CaseFile {
    /// What serde cannot see.
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
                let of_row = |why: String| {
                    let places = [place.clone(), format!("at = \"{}\"", row.at)];
                    Fault::new(places, format!("{} at {}: {why}", series.name, row.at))
                };
                check_row(row).map_err(of_row)?;
                if !rows.insert(&row.at) {
                    return Err(of_row("duplicate row".to_owned()));
                }
            }
        }
        let fits = self.rows().any(|(_, row)| row.fit);
        if !fits && self.parameters.values().any(|it| it.fit.is_some()) {
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

    fn check_parameter(&self, name: &str, it: &Parameter) -> Result<(), String> {
        if !it.value.is_finite() {
            return Err("its value must be finite".to_owned());
        }
        if let Some([low, high]) = it.fit {
            let goes_up = low.is_finite() && high.is_finite() && low < high;
            if !goes_up || !(2..=1000).contains(&it.steps) {
                return Err(format!(
                    "cannot fit from {low} to {high} in {} steps: give an ascending range, and 2 \
                     to 1000 steps",
                    it.steps
                ));
            }
            if !(low..=high).contains(&it.value) {
                return Err(format!("its value must be between {low} and {high}"));
            }
            if it.quote.is_some() {
                return Err("a published value cannot be fitted".to_owned());
            }
        } else if it.from.is_empty() && it.quote.is_none() {
            return Err(
                "give its origin: `quote` if published, `fit` if fitted, `from` if assumed"
                    .to_owned(),
            );
        }
        if let Some(value) = it.others.iter().find(|value| !value.is_finite()) {
            return Err(format!("try: {value} must be finite"));
        }
        let unknown = it.refit.iter().find(|other| {
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
    match row.tolerance.filter(|&it| !is_tolerance(it)) {
        Some(it) => Err(format!(
            "its tolerance is {it}, but must be a number of at least 0"
        )),
        None => Ok(()),
    }
}

fn is_tolerance(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
