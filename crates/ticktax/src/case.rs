//! `ticktax case`: published investigations beside the model.

use std::path::Path;
use std::process::ExitCode;

use ticktax_experiment::own::Asked;
use ticktax_experiment::{Case, CaseFile, OwnCase, all, find, fit, judge};
use ticktax_model::case::{CaseFit, CaseList, CaseStatement, CaseTitle, Line, Remark};
use ticktax_model::document::Document;

use crate::arguments::CaseQuestion;
use crate::failure::Failure;
use crate::output;
use crate::progress::Extent;
use crate::terminal::Terminal;

/// Answers, and ends with 1 where a case does not come out as its file says: a row that is missed and
/// not known to be, or known to be missed and not.
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
        CaseQuestion::Show { name, .. } => read(open(name)?.case())?.sheet().into(),
        CaseQuestion::Run { name, here, .. } => {
            let opened = open(name)?;
            let progress = terminal.progress(Extent::Unknown, "Simulating");
            opened.check_effort(Asked::Run)?;
            let case = opened.case();
            let file = read(case)?;
            // Measured first, while the model does not take the CPUs.
            let measured = if *here { measured(case)? } else { Vec::new() };
            let statement = CaseStatement {
                here: measured,
                ..judge::statement(case, &file)
            };
            progress.done();
            if !statement.lines.iter().all(Line::as_expected) {
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
            CaseFit { head, outcome }.into()
        }
    };
    output::put(&document, html, (question.format(), None), terminal)?;
    Ok(code)
}

/// What a case measures on this machine.
fn measured(case: &dyn Case) -> Result<Vec<Remark>, Failure> {
    let measured = case.measure_here().ok_or_else(|| {
        let name = case.name();
        Failure::Arguments(format!(
            "{name} has nothing to measure on this machine: leave out --here"
        ))
    })?;
    Ok(measured?)
}

/// One of ours, or a file's.
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

    /// Refuses what would take very long; what we have ourselves does not.
    fn check_effort(&self, asked: Asked) -> Result<(), Failure> {
        let Self::Own(case) = self else {
            return Ok(());
        };
        let checked = case.check_effort(asked);
        checked.map_err(|error| Failure::Case(error.to_string()))
    }
}

/// The case of this name, or in this file.
fn open(name: &str) -> Result<Opened, Failure> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|it| it == "toml") || path.is_file();
    if find(name).is_none() && is_file {
        let own = OwnCase::open(path).map_err(|error| Failure::Case(error.to_string()))?;
        return Ok(Opened::Own(Box::new(own)));
    }
    if find(name).is_none() && path.is_dir() {
        let why = format!("{name} is a folder: name the file of a case in it");
        return Err(Failure::Case(why));
    }
    named(name).map(Opened::Known)
}

/// The case of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Case, Failure> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = all().map(Case::name).collect();
        let names = names.join(", ");
        Failure::Case(format!(
            "unknown case `{name}`; known: {names}, or a file of your own such as my.toml"
        ))
    })
}

/// Its file.
pub(crate) fn read(case: &dyn Case) -> Result<CaseFile, Failure> {
    case.file()
        .map_err(|error| Failure::Case(error.to_string()))
}
