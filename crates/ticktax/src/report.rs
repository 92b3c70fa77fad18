//! `ticktax report`: computes and prints the document for a saved recording.

use std::path::Path;
use std::process::ExitCode;

use ticktax_analysis::RecordingAnalysis;
use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Paced, RowSink};
use ticktax_report::{Format, RowsEnded};
use ticktax_store::recording::RecordingReader;

use crate::arguments::{FileArguments, ReportArguments};
use crate::audit::{NO_WAITER, extrapolate};
use crate::budget::Budget;
use crate::failure::{Failure, UNBALANCED};
use crate::output::{self, Output};
use crate::part::Selection;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &ReportArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let budget = Budget::begin(&[&typed.file], terminal);
    let wanted = typed
        .files
        .and_profile(typed.profile.profile_out.as_deref());
    let showing = Showing {
        audit: typed.audit,
        fleet_of: typed.statement.fleet_of,
        format: typed.statement.print.format,
        output: None,
        files: &wanted,
        selection: Selection {
            part: typed.part.part(),
            subject: typed.subject.subject(),
        },
        threads: budget.threads(),
        profiles_waits: typed.profile.while_waiting,
    };
    let recording = ticktax_import::open(&typed.file)?;
    show(
        recording,
        showing,
        &terminal.grouping(&typed.statement.print.view),
    )
}

/// Settings for showing a recording.
pub(crate) struct Showing<'a> {
    /// Whether to report CPU time even if the recording was made to measure a loop's frames.
    pub(crate) audit: bool,
    /// Number of guests like this machine, for estimating what ticks cost a host that runs them.
    /// `None` if no estimate was requested.
    pub(crate) fleet_of: Option<u32>,
    pub(crate) format: Format,
    /// Output file, or `None` for standard output.
    pub(crate) output: Option<&'a Path>,
    /// Additional files that receive the recording's rows.
    pub(crate) files: &'a FileArguments,
    pub(crate) selection: Selection,
    /// Number of threads that search for periodic activity.
    pub(crate) threads: usize,
    /// Whether the profile is one of the time that the program waited for a CPU.
    pub(crate) profiles_waits: bool,
}

pub(crate) fn show(
    mut recording: RecordingReader,
    mut showing: Showing<'_>,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let mut files = output::begin(showing.files, showing.output)?;
    let is_part = showing.selection.part.is_some();
    let selected = std::mem::take(&mut showing.selection).apply(&mut recording)?;
    // The number of lost datagrams is known only for the entire recording, so a part of the
    // recording is reported as CPU time.
    let is_of_packets = matches!(selected.header().paced, Some(Paced::Packets(_)));
    let mut analysis = if is_part && is_of_packets {
        RecordingAnalysis::audit(selected.header())
    } else {
        analysis(selected.header(), &showing, terminal)
    };
    if showing.profiles_waits {
        if selected.header().victim.is_none() {
            return Err(Failure::Arguments(NO_WAITER.to_owned()));
        }
        analysis = analysis.profiling_waits();
    }
    let (sources, header) = selected.replay(&mut |sources, row| {
        analysis.row(sources, row);
        files.row(sources, row);
    })?;
    let header = &header;
    let is_here = ticktax_host::Proc::default().runs_since(&header.machine.host, header.began_unix);
    let terminal = &terminal.about(is_here);
    let mut document = analysis.finish(header, &sources, showing.threads);
    terminal.warn_unverified(header);
    let mut balances = true;
    if let Document::Statement(statement) = &mut document {
        extrapolate(statement.tick.as_mut(), showing.fleet_of, terminal);
        balances = statement.balances();
    }
    let ended = RowsEnded {
        header,
        sources: &sources,
        document: &document,
    };
    let output = Output::new(showing.format, showing.output);
    output::finish(&ended, files, output, terminal)?;
    Ok(if balances {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNBALANCED)
    })
}

fn analysis(header: &Header, showing: &Showing<'_>, terminal: &Terminal) -> RecordingAnalysis {
    if !showing.audit && showing.fleet_of.is_none() {
        return RecordingAnalysis::new(header);
    }
    if header.paced.is_some() && header.cpus.is_empty() {
        let option = if showing.audit {
            "--audit"
        } else {
            "--fleet-of"
        };
        terminal.complain(&format!(
            "{option} is ignored: this recording contains a loop's frames but no spans"
        ));
        return RecordingAnalysis::new(header);
    }
    RecordingAnalysis::audit(header)
}
