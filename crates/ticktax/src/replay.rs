//! `ticktax report`: the statement of a saved recording.

use std::path::Path;
use std::process::ExitCode;

use ticktax_analysis::Auditor;
use ticktax_analysis::pace::{FrameStats, PaceWatch, loop_statement};
use ticktax_model::recording::{Paced, RecordingReader, RowSink};
use ticktax_report::Format;

use crate::arguments::ReportArguments;
use crate::audit::{balances, extrapolate};
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;
use crate::trace_file::TraceFile;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    show(
        &typed.file,
        &Showing {
            fleet_of: typed.fleet_of,
            format: typed.format,
            output: None,
            perfetto: typed.perfetto.as_deref(),
        },
        terminal,
    )
}

/// How to show the statement of a recording.
pub(crate) struct Showing<'a> {
    /// How many such machines a host is to have.
    pub(crate) fleet_of: Option<u32>,
    pub(crate) format: Format,
    /// In place of standard output.
    pub(crate) output: Option<&'a Path>,
    /// Where to write a trace as well.
    pub(crate) perfetto: Option<&'a Path>,
}

/// Prints the statement of the recording in `file`.
pub(crate) fn show(
    file: &Path,
    showing: &Showing<'_>,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(file)?;
    if let Some(paced) = recording.header().paced.clone() {
        return show_frames(&mut recording, &paced, showing, terminal);
    }
    let mut trace = showing.perfetto.map(TraceFile::create).transpose()?;
    let mut auditor = Auditor::new(&recording.header().machine);
    if let Some(victim) = &recording.header().victim {
        auditor.victim_since(victim.begin);
    }
    let sources = recording.replay(&mut |sources, row| {
        auditor.row(sources, row);
        if let Some(trace) = &mut trace {
            trace.row(sources, row);
        }
    })?;
    let mut statement = auditor.finish(recording.header(), &sources, crate::beats::threads());
    extrapolate(&mut statement, showing.fleet_of, terminal);
    if let Some(trace) = trace {
        trace.finish(&sources, &statement, terminal)?;
    }
    let balances = balances(&statement);
    terminal.put(&statement.into(), showing.format, showing.output)?;
    Ok(if balances {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}

/// Prints what became of the frames that a recording was made for.
fn show_frames(
    recording: &mut RecordingReader,
    paced: &Paced,
    showing: &Showing<'_>,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    if showing.fleet_of.is_some() {
        terminal.complain(&"--fleet-of: a recording of `pace` has no bill of ticks");
    }
    if showing.perfetto.is_some() {
        terminal.complain(&"--perfetto: traces are made of recordings of `audit`");
    }
    let statement = match paced {
        Paced::Loop(run) => {
            let machine = &recording.header().machine;
            let mut stats = FrameStats::of_loop(run.report.period, machine);
            recording.replay(&mut |sources, row| stats.row(sources, row))?;
            loop_statement(recording.header(), run, &stats.close())
        }
        Paced::Program => {
            let victim = recording.header().victim.as_ref();
            let pid = victim.and_then(|victim| victim.pid);
            let mut watch = PaceWatch::new(pid.unwrap_or_default());
            recording.replay(&mut |sources, row| watch.row(sources, row))?;
            watch.finish(recording.header())
        }
    };
    terminal.put(&statement.into(), showing.format, showing.output)?;
    Ok(ExitCode::SUCCESS)
}
