//! `ticktax case`: published investigations beside the model.

use std::process::ExitCode;

use ticktax_experiment::{Case, CaseFile, all, find, fit, judge};
use ticktax_model::case::{CaseFit, CaseList, CaseTitle};
use ticktax_model::document::Document;

use crate::arguments::CaseQuestion;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Answers, and ends with 1 where a case does not come out as its file says.
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
        CaseQuestion::Show { name, .. } => read(named(name)?)?.sheet().into(),
        CaseQuestion::Run { name, .. } => {
            let case = named(name)?;
            let file = read(case)?;
            let judgement = judge::judge(case, &file);
            if !judgement.holds() {
                code = ExitCode::FAILURE;
            }
            judgement.statement(&file).into()
        }
        CaseQuestion::Fit { name, .. } => {
            let case = named(name)?;
            let file = read(case)?;
            let outcome = fit::fit(case, &file).map(|fitted| fitted.outcome(case, &file));
            let head = file.head();
            CaseFit { head, outcome }.into()
        }
    };
    terminal.put(&document, question.format(), None)?;
    Ok(code)
}

/// The case of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Case, Failure> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = all().map(Case::name).collect();
        let names = names.join(", ");
        Failure::Case(format!("unknown case `{name}`; known: {names}"))
    })
}

/// Its file.
pub(crate) fn read(case: &dyn Case) -> Result<CaseFile, Failure> {
    case.file()
        .map_err(|error| Failure::Case(error.to_string()))
}
