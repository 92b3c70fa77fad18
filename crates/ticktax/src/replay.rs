//! `ticktax report`: the statement of a saved recording.

use std::process::ExitCode;

use ticktax_analysis::{BeatFinder, Ledger};
use ticktax_model::recording::{RecordingReader, RowSink};

use crate::arguments::ReportArguments;
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(&typed.file)?;
    let mut ledger = Ledger::new();
    let mut beats = BeatFinder::new();
    let sources = recording.replay(&mut |sources, row| {
        ledger.row(sources, row);
        beats.row(sources, row);
    })?;
    let mut statement = ledger.finish(recording.header(), &sources);
    statement.beats = Some(beats.finish(recording.header(), crate::beats::threads()));
    terminal.statement(&statement, typed.format, None)?;
    Ok(if statement.balance.balances() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}
