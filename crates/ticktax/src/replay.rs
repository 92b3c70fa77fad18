//! `ticktax report`: the statement of a saved recording.

use std::process::ExitCode;

use ticktax_analysis::Ledger;
use ticktax_model::recording::{RecordingReader, RowSink};

use crate::arguments::ReportArguments;
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(&typed.file)?;
    let mut ledger = Ledger::new();
    let sources = recording.replay(&mut |sources, row| ledger.row(sources, row))?;
    let statement = ledger.finish(recording.header(), &sources);
    terminal.statement(&statement, typed.format, None)?;
    Ok(if statement.balance.balances() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}
