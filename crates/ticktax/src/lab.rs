//! `ticktax lab`: real kernels in QEMU.

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
use crate::output;
use crate::terminal::Terminal;

/// Does one of the lab's tasks.
pub(crate) fn run(task: &LabTask, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match task {
        LabTask::List { html, format } => {
            let html = output::begin_page(html.as_deref())?;
            let kernels = cache()?.list();
            output::put(&kernels.into(), html, (*format, None), terminal)?;
            Ok(ExitCode::SUCCESS)
        }
        LabTask::Build(typed) => build::run(typed, terminal),
        LabTask::Compare(typed) => compare::run(typed, terminal),
        LabTask::Run(typed) => run::run(typed, terminal),
    }
}

/// What PID 1 of a guest does; refused elsewhere.
pub(crate) fn guest() -> Result<ExitCode, Failure> {
    if !guest::is_init() {
        let why = "lab-guest is for PID 1 of a lab's guest alone; see `ticktax lab run --help`";
        return Err(Failure::Arguments(why.to_owned()));
    }
    Err(LabError::NoResult(guest::run()).into())
}

/// The lab's part of the user's cache (XDG Base Directory Specification).
fn cache() -> Result<Cache, Failure> {
    let set = std::env::var_os;
    Ok(Cache::of_user(set("XDG_CACHE_HOME"), set("HOME"))?)
}
