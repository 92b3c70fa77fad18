mod build;
mod cases;
mod compare;
mod replay;
mod run;

pub(crate) use replay::run as replay;

use std::process::ExitCode;

use ticktax_lab::kernel::Cache;
use ticktax_lab::{LabError, guest};

use crate::arguments::LabTask;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::terminal::Terminal;

pub(crate) fn run(task: &LabTask, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match task {
        LabTask::List { html, format } => {
            let html = output::begin_page(html.as_deref())?;
            let kernels = cache()?.list();
            output::put(&kernels.into(), html, Output::to_stdout(*format), terminal)?;
            Ok(ExitCode::SUCCESS)
        }
        LabTask::Build(typed) => build::run(typed, terminal),
        LabTask::Compare(typed) => compare::run(typed, terminal),
        LabTask::Run(typed) => run::run(typed, terminal),
    }
}

/// Runs as the first process (PID 1) in a lab guest. Returns an error in any other process.
pub(crate) fn guest() -> Result<ExitCode, Failure> {
    if !guest::is_init() {
        let why = "lab-guest only runs as PID 1 of a lab guest: see `ticktax lab run --help`";
        return Err(Failure::Arguments(why.to_owned()));
    }
    Err(LabError::NoResult(guest::run()).into())
}

/// Returns the lab's directory in the user's cache directory (XDG Base Directory Specification).
fn cache() -> Result<Cache, Failure> {
    let variable = std::env::var_os;
    Ok(Cache::of_user(
        variable("XDG_CACHE_HOME"),
        variable("HOME"),
    )?)
}
