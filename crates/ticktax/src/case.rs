//! `ticktax case`: compares published investigations with the model.

use std::path::Path;
use std::process::ExitCode;

use ticktax_casebook::judge::Modelled;
use ticktax_casebook::own::Asked;
use ticktax_casebook::{Case, CaseFile, OwnCase, all, find, fit, judge};
use ticktax_model::case::{CaseFit, CaseList, CaseStatement, CaseTitle, Line, MeasuredRow, Remark};
use ticktax_model::document::Document;
use ticktax_model::net::NetStatement;
use ticktax_store::text::read_document;

use crate::arguments::CaseQuestion;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

/// Runs `ticktax case`. The exit code is 1 if the model misses a row that it should match, or
/// matches a row that the case file lists as a known miss.
pub(crate) fn run(question: &CaseQuestion, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let html = output::begin_page(question.html())?;
    let document: Document = match question {
        CaseQuestion::List { .. } => {
            let title = |case| {
                let CaseFile { name, title, .. } = read(case)?;
                Ok(CaseTitle { name, title })
            };
            let cases = all().map(title).collect::<Result<_, Failure>>()?;
            CaseList { cases }.into()
        }
        CaseQuestion::Show { name, .. } => {
            let opened = open(name)?;
            let file = read(opened.case())?;
            let modelled = if file.mentions_figures() {
                opened.check_effort(Asked::Run)?;
                judge::figures(opened.case(), &file)
            } else {
                Modelled::new()
            };
            file.sheet(&modelled).into()
        }
        CaseQuestion::Run {
            name,
            here,
            traffic,
            ..
        } => {
            let opened = open(name)?;
            let traffic = traffic
                .as_deref()
                .map(|path| read_traffic(opened.case(), path))
                .transpose()?;
            let (rows, source) = traffic.unzip();
            let progress = terminal.progress(Extent::Unknown, "Simulating");
            opened.check_effort(Asked::Run)?;
            let case = opened.case();
            let file = read(case)?;
            // Measure before simulating the model, so that the simulation does not compete for the
            // CPUs.
            let mut measured = if *here {
                measure_here(case)?
            } else {
                Vec::new()
            };
            measured.extend(source);
            let statement = CaseStatement {
                measured: rows.unwrap_or_default(),
                this_machine: measured,
                ..judge::statement(case, &file)
            };
            progress.done();
            if !statement.rows.iter().all(Line::as_expected) {
                code = ExitCode::FAILURE;
            }
            statement.into()
        }
        CaseQuestion::Fit { name, .. } => {
            let opened = open(name)?;
            let progress = terminal.progress(Extent::Unknown, "Fitting");
            opened.check_effort(Asked::Fit)?;
            let case = opened.case();
            let file = read(case)?;
            let outcome = fit::fit(case, &file).map(|fitted| fitted.outcome(case, &file));
            progress.done();
            let head = file.head();
            CaseFit {
                case: head,
                outcome,
            }
            .into()
        }
    };
    output::put(
        &document,
        html,
        Output::to_stdout(question.format()),
        terminal,
    )?;
    Ok(code)
}

fn measure_here(case: &dyn Case) -> Result<Vec<Remark>, Failure> {
    let measured = case.measure_here().ok_or_else(|| {
        let name = case.name();
        Failure::Arguments(format!(
            "{name} cannot be measured on this machine: omit --here"
        ))
    })?;
    Ok(measured?)
}

/// Reads a JSON file written by `ticktax net`, and returns the measurements in it that the case
/// uses.
fn read_traffic(case: &dyn Case, path: &Path) -> Result<(Vec<MeasuredRow>, Remark), Failure> {
    let refused = |why: String| {
        Failure::Case(format!(
            "cannot use {} for {}: {why}; create one with `ticktax net pair --format json \
             --output FILE`",
            path.display(),
            case.name()
        ))
    };
    let text = read_document(path).map_err(|why| refused(why.to_string()))?;
    let traffic: NetStatement = serde_json::from_slice(&text)
        .map_err(|_| refused("it is not JSON output of `ticktax net`".to_owned()))?;
    let Some(rows) = case.measured(&traffic) else {
        let name = case.name();
        let why = format!("{name} does not use traffic: omit --traffic");
        return Err(Failure::Arguments(why));
    };
    rows.map_err(|why| refused(why.to_string()))
}

/// A built-in case, or a case from the user's own file.
enum Opened {
    Known(&'static dyn Case),
    Own(Box<OwnCase>),
}

impl Opened {
    fn case(&self) -> &dyn Case {
        match self {
            Self::Known(case) => *case,
            Self::Own(case) => &**case,
        }
    }

    /// Rejects a user's case that would take too long to compute. Built-in cases are known to be
    /// fast enough.
    fn check_effort(&self, asked: Asked) -> Result<(), Failure> {
        let Self::Own(case) = self else {
            return Ok(());
        };
        let checked = case.check_effort(asked);
        checked.map_err(|error| Failure::Case(error.to_string()))
    }
}

fn open(name: &str) -> Result<Opened, Failure> {
    let path = Path::new(name);
    let is_file = path
        .extension()
        .is_some_and(|extension| extension == "toml")
        || path.is_file();
    if find(name).is_none() && is_file {
        let own = OwnCase::open(path).map_err(|error| Failure::Case(error.to_string()))?;
        return Ok(Opened::Own(Box::new(own)));
    }
    if find(name).is_none() && path.is_dir() {
        let why = format!("{name} is a directory: give the path of a case file");
        return Err(Failure::Case(why));
    }
    named(name).map(Opened::Known)
}

pub(crate) fn named(name: &str) -> Result<&'static dyn Case, Failure> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = all().map(Case::name).collect();
        let names = names.join(", ");
        Failure::Case(format!(
            "unknown case `{name}`: choose {names}, or give the path of your own case file"
        ))
    })
}

pub(crate) fn read(case: &dyn Case) -> Result<CaseFile, Failure> {
    case.file()
        .map_err(|error| Failure::Case(error.to_string()))
}
