//! `ticktax case`: published investigations beside the model.

use std::process::ExitCode;

use ticktax_experiment::{Case, CaseFile, all, find, fit, judge};
use ticktax_model::case::CaseFit;

use crate::arguments::{CaseQuestion, Format};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Answers, and ends with 1 where a case does not come out as its file says.
pub(crate) fn run(question: &CaseQuestion, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let page = match question {
        CaseQuestion::List => {
            let files: Vec<CaseFile> = all().map(read).collect::<Result<_, _>>()?;
            let names = files.iter().map(|file| (&*file.name, &*file.title));
            ticktax_report::cases(&names.collect::<Vec<_>>())
        }
        CaseQuestion::Show { name } => ticktax_report::case_sheet(&read(named(name)?)?.sheet()),
        CaseQuestion::Run { name, format } => {
            let case = named(name)?;
            let file = read(case)?;
            let judgement = judge::judge(case, &file);
            if !judgement.holds() {
                code = ExitCode::FAILURE;
            }
            let statement = judgement.statement(&file);
            match format {
                Format::Text => ticktax_report::case(&statement),
                Format::Json => ticktax_report::case_json(&statement),
            }
        }
        CaseQuestion::Fit { name } => {
            let case = named(name)?;
            let file = read(case)?;
            let outcome = fit::fit(case, &file).map(|fitted| fitted.outcome(case, &file));
            let head = file.head();
            ticktax_report::case_fit(&CaseFit { head, outcome })
        }
    };
    terminal.print(&page)?;
    Ok(code)
}

/// The case of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Case, Failure> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = all().map(Case::name).collect();
        let names = names.join(", ");
        Failure::Case(format!("there is no case `{name}`; there are {names}"))
    })
}

/// Its file.
pub(crate) fn read(case: &dyn Case) -> Result<CaseFile, Failure> {
    case.file()
        .map_err(|error| Failure::Case(error.to_string()))
}
