//! `ticktax report`: the statement of a saved recording.

use std::process::ExitCode;

use ticktax_analysis::{BeatFinder, Ledger, Victim};
use ticktax_model::recording::{RecordingReader, RowSink};

use crate::arguments::ReportArguments;
use crate::audit::{balances, extrapolate};
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(&typed.file)?;
    let mut ledger = Ledger::new();
    let mut beats = BeatFinder::new();
    let asked = recording.header().victim.as_ref();
    let mut victim = asked.map(|victim| Victim::new(victim.begin));
    let sources = recording.replay(&mut |sources, row| {
        ledger.row(sources, row);
        beats.row(sources, row);
        if let Some(victim) = &mut victim {
            victim.row(sources, row);
        }
    })?;
    let header = recording.header();
    let mut statement = ledger.finish(header, &sources);
    statement.beats = Some(beats.finish(header, crate::beats::threads()));
    extrapolate(&mut statement, typed.fleet_of, terminal);
    statement.victim = victim.and_then(|victim| victim.finish(header, &sources));
    terminal.statement(&statement, typed.format, None)?;
    Ok(if balances(&statement) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}
