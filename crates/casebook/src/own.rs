//! Cases defined by users. Each is modelled by the simulator scenario that its case file names.
//!
//! A row's label can set anything that `sweep --vary` can set, and so can each parameter. Each
//! series is compared with one column of the sweep's results. `docs/reference/case.md` contains an
//! example.

use std::collections::BTreeMap;
use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::table::Cell;
use ticktax_sim::settings::Kind;
use ticktax_sim::{Setup, run, scenario};

use crate::cases::Case;
use crate::file::{CaseFile, Parameter, Values};
use crate::judge::Modelled;
use ticktax_experiment::vary::{MOST_ARMS, Parameter as _, Vary, VaryError};
use ticktax_predict::axes::{Axis, Field, Grid};
use ticktax_predict::sweep::outcome::{cells, columns};
use ticktax_store::text;

mod effort;
mod error;

pub use effort::Asked;
pub use error::{OwnCaseError, OwnCaseFault, RowError};

/// A user's case, modelled by a scenario.
#[derive(Debug)]
pub struct OwnCase {
    /// Path as typed.
    shown: String,
    text: String,
    file: CaseFile,
    setup: Setup,
}

impl OwnCase {
    /// Loads the case at `path` and its scenario. Checks that every row can be simulated with the
    /// constants in the file.
    ///
    /// # Errors
    /// Returns an error if a file is unreadable or invalid, or if the case refers to something that
    /// the scenario lacks.
    pub fn open(path: &Path) -> Result<Self, OwnCaseError> {
        let shown = path.display().to_string();
        let unusable = |fault| OwnCaseError::Unusable {
            file: shown.clone(),
            fault: Box::new(fault),
        };
        let text = text::read(path, "case")?;
        let file = CaseFile::parse(&shown, &text)?;
        let Some(model) = &file.model else {
            return Err(unusable(OwnCaseFault::NoModel));
        };
        let place = path.parent().unwrap_or(Path::new("")).join(&model.scenario);
        // Someone else's case file could name a device as its scenario, or a pipe that would block.
        if std::fs::metadata(&place).is_ok_and(|found| !found.is_file()) {
            return Err(unusable(OwnCaseFault::NotAFile { path: place }));
        }
        let scenario = text::read(&place, "scenario")?;
        let setup = scenario::parse(&place.display().to_string(), &scenario)?;
        let case = Self {
            shown,
            text,
            file,
            setup,
        };
        case.check().map_err(|fault| case.unusable(fault))?;
        Ok(case)
    }

    fn unusable(&self, fault: impl Into<OwnCaseFault>) -> OwnCaseError {
        OwnCaseError::Unusable {
            file: self.shown.clone(),
            fault: Box::new(fault.into()),
        }
    }

    /// Returns an error if the case refers to something that the scenario lacks.
    fn check(&self) -> Result<(), OwnCaseFault> {
        let columns = columns(&self.setup);
        for series in &self.file.series {
            let known = |name: &String| columns.iter().any(|column| column.name == *name);
            if let Some(unknown) = series.measure.as_ref().filter(|name| !known(name)) {
                return Err(OwnCaseFault::NoColumn {
                    series: series.name.clone(),
                    column: unknown.clone(),
                });
            }
        }
        if self
            .file
            .series
            .iter()
            .all(|series| series.measure.is_none())
        {
            return Err(OwnCaseFault::NothingToCompare);
        }
        let unused = |parameter: &Parameter| parameter.fit.is_some() && parameter.sets.is_none();
        if let Some((name, _)) = self
            .file
            .parameters
            .iter()
            .find(|(_, parameter)| unused(parameter))
        {
            return Err(OwnCaseFault::NoSets {
                parameter: name.clone(),
            });
        }
        let values = self.file.values();
        let rows = self.file.rows();
        let mut is_first = true;
        for (series, row) in rows.filter(|(series, _)| series.measure.is_some()) {
            self.point(&row.at, &values)
                .map_err(|why| OwnCaseFault::Row {
                    series: series.name.clone(),
                    at: row.at.clone(),
                    why,
                })?;
            if is_first {
                self.check_values(&row.at, &values)?;
            }
            is_first = false;
        }
        Ok(())
    }

    /// Checks one row with the bounds of each fit and with all alternative values. If the simulator
    /// rejected one of these later, the sensitivity analysis would have no rows.
    fn check_values(&self, at: &str, values: &Values) -> Result<(), OwnCaseFault> {
        for (name, parameter) in self
            .file
            .parameters
            .iter()
            .filter(|(_, parameter)| parameter.sets.is_some())
        {
            let fitted = parameter.fit.iter().flatten().map(|value| ("fit", value));
            let tried = parameter.others.iter().map(|value| ("try", value));
            for (key, &value) in fitted.chain(tried) {
                self.point(at, &values.with(name, value))
                    .map_err(|why| OwnCaseFault::Value {
                        parameter: name.clone(),
                        key,
                        why,
                    })?;
            }
        }
        Ok(())
    }

    /// Returns the setup for simulating the row with the label `at`.
    fn point(&self, at: &str, values: &Values) -> Result<Setup, RowError> {
        let row = self
            .file
            .model
            .as_ref()
            .and_then(|model| model.row.as_ref());
        let row = row.map(|name| self.axis_of(name, at));
        let sets = self.file.parameters.iter().filter_map(|(name, parameter)| {
            let value = values.get(name);
            let axis = parameter.sets.as_ref()?;
            Some(self.axis(axis, value, &parameter.unit))
        });
        let row = row.map(|axis| axis.map_err(RowError::from));
        let axes: Vec<Axis> = row.into_iter().chain(sets).collect::<Result<_, _>>()?;
        Ok(Grid::with_axes(axes, self.setup.clone(), MOST_ARMS)?.arm(0)?)
    }

    /// Returns an axis that sets the parameter `name` to the values in `list`.
    fn axis_of(&self, name: &str, list: &str) -> Result<Axis, VaryError> {
        let typed = format!("{name}={list}").parse::<Vary>()?;
        Axis::new(&typed, &self.setup)
    }

    /// Returns an axis that sets the parameter `name` to `value`. `unit` is used only if the
    /// parameter is a duration.
    fn axis(&self, name: &str, value: f64, unit: &str) -> Result<Axis, RowError> {
        let field = Field::find(name, &self.setup).map_err(|why| RowError::Field {
            axis: name.to_owned(),
            why,
        })?;
        if field.kind() != Kind::Duration {
            return Ok(self.axis_of(name, &value.to_string())?);
        }
        let word = unit.split(' ').next().unwrap_or_default();
        let scale = format!("1{word}").parse::<Nanos>();
        let scale = scale.map_err(|_| RowError::Unit {
            axis: name.to_owned(),
        })?;
        Ok(self.axis_of(name, &format!("{}ns", (value * scale.0 as f64).round()))?)
    }

    /// Simulates the row with the label `at`. Returns its figures by the sweep's column names, or
    /// `None` if the row cannot be simulated.
    fn simulate(&self, at: &str, values: &Values) -> Option<BTreeMap<String, f64>> {
        let setup = self.point(at, values).ok()?;
        let report = run(&setup).ok()?;
        let names = columns(&setup).into_iter().map(|column| column.name);
        let numbers = names.zip(cells(&setup, &report));
        let numbers = numbers.filter_map(|(name, cell)| match cell {
            Cell::Integer(number) => Some((name, number as f64)),
            Cell::Real(number) => Some((name, number)),
            Cell::Nothing | Cell::Text(_) => None,
        });
        Some(numbers.collect())
    }
}

impl Case for OwnCase {
    fn text(&self) -> &str {
        &self.text
    }

    fn name(&self) -> &str {
        &self.file.name
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut ran: BTreeMap<&str, Option<BTreeMap<String, f64>>> = BTreeMap::new();
        let mut modelled = Modelled::new();
        for (series, row) in file.rows() {
            let Some(measure) = &series.measure else {
                continue;
            };
            let numbers = ran
                .entry(&row.at)
                .or_insert_with(|| self.simulate(&row.at, values));
            let found = numbers.as_ref().and_then(|numbers| {
                let seconds = Nanos::from_secs(1).0 as f64;
                let elapsed = numbers
                    .get("elapsed_ns")
                    .map_or(1.0, |elapsed| elapsed / seconds);
                let per = if series.per_second { elapsed } else { 1.0 };
                Some(numbers.get(measure)? * series.scale / per)
            });
            if let Some(value) = found {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn file(&self) -> Result<CaseFile, crate::file::CaseError> {
        Ok(self.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::effort::Asked;

    use super::OwnCase;
    use crate::cases::Case;
    use crate::fit::fit;
    use crate::judge::statement;

    const SCENARIO: &str = "length = \"20s\"\n[machine]\nhz = 100\npolicy = \"o1\"\n\
        timers = \"first-tick\"\n[[task]]\nname = \"game\"\n\
        program = [\"frame\", { work = \"3ms\" }, { sleep = \"20ms\" }]\n";

    const CASE: &str = "name = \"mine\"\ntitle = \"t\"\nsource = \"s\"\nmechanism = \"m\"\n\
        [model]\nscenario = \"loop.toml\"\nrow = \"hz\"\n\
        [parameters.work]\nvalue = 4\nunit = \"ms\"\nfit = [1, 8]\nsteps = 15\n\
        sets = \"task.game.work\"\ntry = [2, 4, 6]\n\
        [[series]]\nname = \"cpu\"\nunit = \"%\"\ntolerance = 0.3\n\
        measure = \"task.game.cpu_share\"\nscale = 100\n\
        rows = [{ at = \"100\", value = 16.67, fit = true }, { at = \"1000\", value = 19.8 }]\n\
        [[series]]\nname = \"frames\"\nunit = \"1/s\"\ntolerance = 0.1\n\
        measure = \"task.game.frames\"\nper-second = true\n\
        rows = [{ at = \"100\", quote = \"33.3 a second\", value = 33.3 }, { at = \"500\" }]\n";

    fn open(case: &str, scenario: &str) -> Result<OwnCase, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.toml"), case).unwrap();
        std::fs::write(folder.path().join("loop.toml"), scenario).unwrap();
        let opened = OwnCase::open(&folder.path().join("mine.toml"));
        opened.map_err(|error| error.to_string())
    }

    #[test]
    fn a_users_case_is_fitted_and_compared_like_any_other() {
        let case = open(CASE, SCENARIO).unwrap();
        let file = case.file().unwrap();
        let fitted = fit(&case, &file).unwrap();
        // A frame takes 30 ms: 5 ms of work, and a sleep of 20 ms that is prolonged until the next
        // 10 ms tick.
        assert!((fitted.values.get("work") - 5.0).abs() < 0.1, "{fitted:?}");
        let statement = statement(&case, &file);
        let frames = statement.rows.iter().find(|line| line.series == "frames");
        assert_eq!(frames.unwrap().met(), Some(true), "{statement:#?}");
        // With the file's 4 ms of work, the CPU share is 13.3 %, which must not match the published
        // share.
        assert_eq!(statement.rows[0].met(), Some(false));
        assert_eq!(statement.sensitivity[0].points.len(), 3);
    }

    #[test]
    fn unknown_names_are_reported_in_one_line() {
        let cases = [
            (
                CASE.replace("task.game.frames", "task.game.fames"),
                "no column `task.game.fames`",
            ),
            (CASE.replace("row = \"hz\"", "row = \"herz\""), "herz"),
            (
                CASE.replace("at = \"500\"", "at = \"fast\""),
                "frames at fast",
            ),
            (
                CASE.replace("task.game.work", "task.gane.work"),
                "task.gane.work",
            ),
            (
                CASE.replace("unit = \"ms\"", "unit = \"beats\""),
                "unit must start with ns",
            ),
            (CASE.replace("loop.toml", "loops.toml"), "no such file"),
            (CASE.replace("measure", "#"), "no series has a `measure`"),
            (
                CASE.replace("sets = \"task.game.work\"\n", ""),
                "must have `sets`",
            ),
            (
                CASE.replace("[model]\nscenario = \"loop.toml\"\nrow = \"hz\"\n", ""),
                "needs a [model]",
            ),
            (
                CASE.replace("value = 16.67", "value = \"16.67\""),
                "mine.toml:21",
            ),
        ];
        for (text, what) in cases {
            let error = open(&text, SCENARIO).unwrap_err();
            assert!(error.contains(what), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = open(CASE, "length = \"soon\"").unwrap_err();
        assert!(error.contains("loop.toml:1"), "{error}");
        let error = OwnCase::open(Path::new("/nonexistent/x.toml")).unwrap_err();
        assert!(
            error.to_string().contains("x.toml: no such file"),
            "{error}"
        );
    }

    #[test]
    fn cases_that_would_take_hours_are_refused() {
        let refused = |case: &str, scenario: &str, asked: Asked| {
            let opened = open(case, scenario).unwrap();
            let error = opened.check_effort(asked).unwrap_err().to_string();
            assert!(error.contains("mine.toml: "), "{error}");
            assert!(!error.contains('\n'), "{error}");
            error
        };
        let opened = open(CASE, SCENARIO).unwrap();
        opened.check_effort(Asked::Run).unwrap();
        opened.check_effort(Asked::Fit).unwrap();
        let day = SCENARIO.replace("20s", "24h");
        let busy = day.replace("20ms", "20us").replace("3ms", "1us");
        let error = refused(CASE, &busy, Asked::Run);
        assert!(error.contains("shorten the scenario's `length`"), "{error}");
        let many = CASE.replace("steps = 15", "steps = 1000");
        let hour = SCENARIO.replace("20s", "1h");
        let opened = open(&many, &hour).unwrap();
        opened.check_effort(Asked::Run).unwrap();
        let error = refused(&many, &hour, Asked::Fit);
        assert!(error.contains("fewer `steps`"), "{error}");
        let error = open(CASE, &SCENARIO.replace("20s", "1000h")).unwrap_err();
        assert!(
            error.contains("loop.toml:1: length: 3600000s is longer"),
            "{error}"
        );
    }

    #[test]
    fn values_that_the_scenario_rejects_are_reported() {
        for (from, to, what) in [
            ("try = [2, 4, 6]", "try = [-2, 4, 6]", "work: try: "),
            ("fit = [1, 8]", "fit = [-1, 8]", "work: fit: "),
        ] {
            let error = open(&CASE.replace(from, to), SCENARIO).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        let rows: Vec<String> = (0..1001).map(|n| format!("{{ at = \"{n}\" }}, ")).collect();
        let many = CASE.replace("{ at = \"500\" }", &rows.concat());
        let error = open(&many, SCENARIO).unwrap_err();
        assert!(error.contains("give at most 1000"), "{error}");
        let long = format!("{CASE}# {}\n", "x".repeat(1 << 20));
        let error = open(&long, SCENARIO).unwrap_err();
        assert!(error.contains("larger than 1 MiB"), "{error}");
    }
}
