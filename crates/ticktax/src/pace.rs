//! `ticktax pace`: runs a paced loop, watches another program's loop, compares arms, or sends paced
//! datagrams.

mod compare;
mod own;
mod packets;
mod process;

use std::process::ExitCode;

use ticktax_model::Nanos;

use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::output;
use crate::terminal::Terminal;

/// Default length.
const LENGTH: Nanos = Nanos::from_secs(10);

/// Interval between updates of the live figures.
const LIVE: Nanos = Nanos::from_secs(1);

pub(crate) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if typed.packets.udp {
        return packets::run(typed, terminal);
    }
    let arms = typed.arms()?;
    let terminal = &terminal.viewing(&typed.page);
    let files = output::begin(&typed.files, typed.output.as_deref())?;
    match (typed.program(), arms.is_empty()) {
        (Some(program), _) => process::watch_process(program, typed, files, terminal)?,
        (None, false) => compare::run(&arms, typed, files, terminal)?,
        (None, true) => own::run(typed, files, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}
