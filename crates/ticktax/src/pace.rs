//! `ticktax pace`: a paced loop of its own, somebody else's, or many side by side.

mod own;
mod process;
mod sweep;

use std::process::ExitCode;

use ticktax_model::Nanos;

use crate::arguments::{PaceArguments, ProcessId};
use crate::failure::Failure;
use crate::terminal::{self, Terminal};

/// Runs the verb.
pub(crate) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    // Before anything is run: a file that cannot be made should not cost a minute's wait.
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    match (typed.pid, &typed.sweep) {
        (Some(ProcessId(pid)), _) => {
            let statement = process::watch(pid, typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
        (None, Some(lists)) => {
            let statement = sweep::compare(lists, typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
        (None, None) => {
            let statement = own::run(typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How often somebody who watches is told how it goes.
const LIVE: Nanos = Nanos::from_secs(1);
