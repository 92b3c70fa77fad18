//! `ticktax compare`: what changed between two recordings.

use std::process::ExitCode;

use ticktax_experiment::changes::compare;

use crate::arguments::ChangesArguments;
use crate::beats::threads;
use crate::failure::Failure;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ChangesArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let changes = compare(&typed.first, &typed.second, threads(), version)?;
    let terminal = terminal.viewing(&typed.page);
    terminal.put(&changes.into(), typed.format, typed.output.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
