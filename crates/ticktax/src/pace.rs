//! `ticktax pace`: a paced loop of its own, somebody else's, or many side by side.

mod compare;
mod own;
mod process;

use std::process::ExitCode;

use ticktax_model::Nanos;
use ticktax_model::pace::PaceStatement;
use ticktax_model::recording::Header;

use crate::arguments::{PaceArguments, ProcessId};
use crate::failure::Failure;
use crate::saved::SavedAs;
use crate::terminal::{self, Terminal};

/// Runs the verb.
pub(crate) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    // Before anything is run: a file that cannot be made should not cost a minute's wait.
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    let variants = typed.variants()?;
    let mut file = typed.save.clone().map(SavedAs::create).transpose()?;
    match (typed.pid, variants.is_empty()) {
        (Some(ProcessId(pid)), _) => {
            let (statement, header) = process::watch(pid, typed, &mut file, terminal)?;
            finish(statement, file, &header, typed, terminal)?;
        }
        (None, false) => {
            let statement = compare::compare(&variants, typed, terminal)?;
            terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
        }
        (None, true) => {
            let (statement, header) = own::run(typed, &mut file, terminal)?;
            finish(statement, file, &header, typed, terminal)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what became of the frames, and finishes the recording of them.
fn finish(
    statement: PaceStatement,
    file: Option<SavedAs>,
    header: &Header,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let printed = terminal.put(&statement.into(), typed.format, typed.output.as_deref());
    // A page that nobody can read is no reason to lose the recording as well.
    if let Some(file) = file {
        file.finish(header, terminal)?;
    }
    printed
}

/// How often somebody who watches is told how it goes.
const LIVE: Nanos = Nanos::from_secs(1);
