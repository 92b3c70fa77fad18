//! `ticktax report`: the statement of a saved recording.

use std::process::ExitCode;

use ticktax_analysis::Auditor;
use ticktax_model::recording::{RecordingReader, RowSink};

use crate::arguments::ReportArguments;
use crate::audit::{balances, extrapolate};
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(&typed.file)?;
    let mut auditor = Auditor::new(&recording.header().machine);
    if let Some(victim) = &recording.header().victim {
        auditor.victim_since(victim.begin);
    }
    let sources = recording.replay(&mut |sources, row| auditor.row(sources, row))?;
    let mut statement = auditor.finish(recording.header(), &sources, crate::beats::threads());
    extrapolate(&mut statement, typed.fleet_of, terminal);
    terminal.statement(&statement, typed.format, None)?;
    Ok(if balances(&statement) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}
