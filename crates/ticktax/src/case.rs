//! `ticktax case`: published investigations beside the model.

use std::process::ExitCode;

use ticktax_experiment::{Case, CaseFile, all, find, fit, judge, page};

use crate::arguments::CaseQuestion;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Answers, and ends with 1 where a case does not come out as its file says.
pub(crate) fn run(question: &CaseQuestion, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let page = match question {
        CaseQuestion::List => {
            let files: Vec<CaseFile> = all().into_iter().map(read).collect::<Result<_, _>>()?;
            let names = files.iter().map(|file| (&*file.name, &*file.title));
            page::list(&names.collect::<Vec<_>>())
        }
        CaseQuestion::Show { name } => page::show(&read(named(name)?)?),
        CaseQuestion::Run { name } => {
            let case = named(name)?;
            let file = read(case)?;
            let judgement = judge::judge(case, &file);
            if !judgement.holds() {
                code = ExitCode::FAILURE;
            }
            page::run(&file, &judgement)
        }
        CaseQuestion::Fit { name } => {
            let case = named(name)?;
            let file = read(case)?;
            page::fit(case, &file, fit::fit(case, &file).as_ref())
        }
    };
    terminal.print(&page)?;
    Ok(code)
}

fn named(name: &str) -> Result<&'static dyn Case, Failure> {
    find(name).ok_or_else(|| {
        let names = all().map(Case::name).join(", ");
        Failure::Case(format!("there is no case `{name}`; there are {names}"))
    })
}

fn read(case: &dyn Case) -> Result<CaseFile, Failure> {
    case.file()
        .map_err(|error| Failure::Case(error.to_string()))
}
