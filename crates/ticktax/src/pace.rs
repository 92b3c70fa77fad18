//! `ticktax pace`: a paced loop of its own, somebody else's, or many side by side.

mod compare;
mod own;
mod process;

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
    let variants = typed.variants()?;
    match (typed.pid, variants.is_empty()) {
        (Some(ProcessId(pid)), _) => {
            let statement = process::watch(pid, typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
        (None, false) => {
            let statement = compare::compare(&variants, typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
        (None, true) => {
            let statement = own::run(typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How often somebody who watches is told how it goes.
const LIVE: Nanos = Nanos::from_secs(1);
