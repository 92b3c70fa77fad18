//! `ticktax report`: what was printed of a recording, again from its file.

use std::path::Path;
use std::process::ExitCode;

use ticktax_analysis::RecordingAnalysis;
use ticktax_model::document::Document;
use ticktax_model::recording::{RecordingReader, RowSink};
use ticktax_report::{Format, RowsEnded};

use crate::arguments::{FileArguments, ReportArguments};
use crate::audit::extrapolate;
use crate::failure::{Failure, UNBALANCED};
use crate::output;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let showing = Showing {
        fleet_of: typed.fleet_of,
        format: typed.format,
        output: None,
        files: &typed.files,
    };
    show(&typed.file, &showing, terminal)
}

/// How to show what is in a recording.
pub(crate) struct Showing<'a> {
    /// How many such machines a host is to have.
    pub(crate) fleet_of: Option<u32>,
    pub(crate) format: Format,
    /// In place of standard output.
    pub(crate) output: Option<&'a Path>,
    /// Where to write its rows as well.
    pub(crate) files: &'a FileArguments,
}

/// Prints the document of the recording in `file`.
pub(crate) fn show(
    file: &Path,
    showing: &Showing<'_>,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let mut recording = RecordingReader::open(file)?;
    let mut files = output::begin(showing.files, showing.output)?;
    let mut analysis = RecordingAnalysis::new(recording.header());
    let sources = recording.replay(&mut |sources, row| {
        analysis.row(sources, row);
        files.row(sources, row);
    })?;
    let header = recording.header();
    let mut document = analysis.finish(header, &sources, crate::beats::threads());
    let mut balances = true;
    if let Document::Statement(statement) = &mut document {
        extrapolate(statement.tick.as_mut(), showing.fleet_of, terminal);
        balances = statement.balances();
    } else if showing.fleet_of.is_some() {
        terminal.complain(&"--fleet-of: a recording of `pace` has no bill of ticks");
    }
    let ended = RowsEnded {
        header,
        sources: &sources,
        document: &document,
    };
    output::finish(&ended, files, (showing.format, showing.output), terminal)?;
    Ok(if balances {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}
