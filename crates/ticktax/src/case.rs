//! `ticktax case`: published investigations beside the model.

use std::path::Path;
use std::process::ExitCode;

use ticktax_experiment::{Case, CaseFile, OwnCase, all, find, fit, judge};
use ticktax_model::case::{CaseFit, CaseList, CaseTitle, Line};
use ticktax_model::document::Document;

use crate::arguments::CaseQuestion;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Answers, and ends with 1 where a case does not come out as its file says: a row that is missed and
/// not known to be, or known to be missed and not.
pub(crate) fn run(question: &CaseQuestion, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
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
        CaseQuestion::Run { name, .. } => {
            let opened = open(name)?;
            let case = opened.case();
            let file = read(case)?;
            let statement = judge::statement(case, &file);
            if !statement.lines.iter().all(Line::as_expected) {
                code = ExitCode::FAILURE;
            }
            statement.into()
        }
        CaseQuestion::Fit { name, .. } => {
            let opened = open(name)?;
            let case = opened.case();
            let file = read(case)?;
            let outcome = fit::fit(case, &file).map(|fitted| fitted.outcome(case, &file));
            let head = file.head();
            CaseFit { head, outcome }.into()
        }
    };
    terminal.put(&document, question.format(), None)?;
    Ok(code)
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
}

/// The case of this name, or in this file.
fn open(name: &str) -> Result<Opened, Failure> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|it| it == "toml") || path.is_file();
    if find(name).is_none() && is_file {
        let own = OwnCase::open(path).map_err(|error| Failure::Case(error.to_string()))?;
        return Ok(Opened::Own(Box::new(own)));
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
