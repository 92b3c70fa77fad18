//! `ticktax incidents` and `ticktax mark`: what flight recorders caught, and asking one to keep this moment.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use ticktax_analysis::incident::{IncidentAnalysis, incident_list, incident_sheet};
use ticktax_model::document::Document;
use ticktax_model::incident::{Incident, IncidentIndex};
use ticktax_model::recording::RowSink;
use ticktax_report::{Format, RowsEnded};
use ticktax_store::disk;
use ticktax_store::incidents::{IncidentFolder, Unindexed};
use ticktax_store::recording::{RecordingError, RecordingReader};

use crate::arguments::{
    FileArguments, FolderArguments, IncidentQuestion, IncidentsArguments, MarkArguments,
};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::files::HtmlFile;
use crate::output;
use crate::part::Selection;
use crate::report::{self, Showing};
use crate::state::StateFolder;
use crate::terminal::Terminal;
use crate::wall_clock;

/// The socket in a folder of incidents that its recorder listens to.
pub(crate) const SOCKET: &str = "mark.sock";
/// Time for a recorder to take a mark.
const PATIENCE: Duration = Duration::from_secs(2);
/// The bytes of a mark's words that are kept.
pub(crate) const WORDS_MAX: usize = 256;

pub(crate) fn run(typed: &IncidentsArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let place = folder(&typed.folder)?;
    let budget = Budget::begin(&[&place], terminal);
    let folder = IncidentFolder::open(&place)?;
    let index = read(&folder, terminal)?;
    let since = typed
        .since
        .map(|since| since.unix_ms(wall_clock::unix_ms()));
    let (document, kept, wanted): (Document, Option<String>, bool) = match typed.question {
        None | Some(IncidentQuestion::List) => {
            let name = folder.path().display().to_string();
            (incident_list(&name, &index, since).into(), None, false)
        }
        Some(IncidentQuestion::Show { number, report }) => {
            let entry = index.entries().find(|entry| entry.number == number);
            let name = entry.and_then(|entry| entry.recording.clone());
            let name = name.filter(|name| folder.size(name).is_some());
            let path = name.as_ref().map(|name| folder.path_of(name));
            let shown = path.map(|path| path.display().to_string());
            let Some(sheet) = incident_sheet(&index, number, shown) else {
                return Err(unknown(number, &index, folder.path()));
            };
            if report && name.is_none() {
                return Err(Failure::Incidents(format!(
                    "incident {number} has no recording any more: leave out --report"
                )));
            }
            (sheet.into(), name, report)
        }
    };
    match (html, &kept) {
        (Some(page), Some(name)) => {
            let recording = folder.recording(name)?;
            put_with_rows(&document, page, recording, typed.format, terminal)?;
        }
        (html, _) => output::put(&document, html, (typed.format, None), terminal)?,
    }
    match kept.filter(|_| wanted) {
        None => Ok(ExitCode::SUCCESS),
        Some(name) => {
            terminal.print("")?;
            let showing = Showing {
                audit: false,
                fleet_of: None,
                format: typed.format,
                output: None,
                files: &FileArguments::default(),
                selection: Selection::default(),
                threads: budget.threads(),
            };
            report::show(folder.recording(&name)?, showing, terminal)
        }
    }
}

/// Prints an incident whose page has the timeline of its recording.
fn put_with_rows(
    document: &Document,
    mut page: HtmlFile,
    mut recording: RecordingReader,
    format: Format,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let sources = recording.replay(&mut |sources, row| page.row(sources, row))?;
    let ended = RowsEnded {
        header: recording.header(),
        sources: &sources,
        document,
    };
    output::put_page(page.finish_with_rows(&ended), (document, format), terminal)
}

/// There is no such incident.
fn unknown(number: u64, index: &IncidentIndex, folder: &Path) -> Failure {
    let there = match index.last_number() {
        0 => "there is none".to_owned(),
        last => format!("the last is {last}"),
    };
    Failure::Incidents(format!(
        "no incident {number} in {}: {there}; `ticktax incidents` lists them",
        folder.display()
    ))
}

/// Reads the index, with the incidents of recordings that it lacks.
fn read(folder: &IncidentFolder, terminal: &Terminal) -> Result<IncidentIndex, Failure> {
    let (mut index, unindexed) = folder.read()?;
    for found in &unindexed {
        match explained(folder, found) {
            Ok(Some(incident)) => folder.add_found(&mut index, found, incident),
            Ok(None) => {}
            Err(error) => terminal.complain(&error),
        }
    }
    Ok(index)
}

/// The incident of a recording that the index lacks; `None` if no trigger made the recording.
pub(crate) fn explained(
    folder: &IncidentFolder,
    found: &Unindexed,
) -> Result<Option<Incident>, RecordingError> {
    let mut recording = folder.recording(&found.name)?;
    let Some(mut analysis) = IncidentAnalysis::new(&recording.header().triggers) else {
        return Ok(None);
    };
    let sources = recording.replay(&mut |sources, row| analysis.row(sources, row))?;
    Ok(Some(analysis.finish(
        recording.header(),
        &sources,
        found.at_unix_ms,
    )))
}

/// Sends a mark to the recorder of a folder.
pub(crate) fn mark(typed: &MarkArguments) -> Result<ExitCode, Failure> {
    let socket = folder(&typed.folder)?.join(SOCKET);
    let words = typed.words.join(" ");
    if words.len() > WORDS_MAX {
        return Err(Failure::Arguments(format!(
            "a mark has at most {WORDS_MAX} bytes of words"
        )));
    }
    // A link could lead to the socket of another program.
    let is_socket = fs::symlink_metadata(&socket).map(|facts| facts.file_type().is_socket());
    let sent = match is_socket {
        Ok(true) => send(words.as_bytes(), &socket),
        Ok(false) => Err(io::ErrorKind::ConnectionRefused.into()),
        Err(error) => Err(error),
    };
    sent.map_err(|error| {
        let socket = socket.display();
        // The socket of another program, which takes streams.
        let is_other = error.raw_os_error() == Some(Errno::EPROTOTYPE as i32);
        Failure::Incidents(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => no_recorder(&socket),
            _ if is_other => no_recorder(&socket),
            io::ErrorKind::WouldBlock => format!(
                "the recorder at {socket} did not take the mark within {} s, so nothing was kept: if \
                 the recorder hangs, restart it",
                PATIENCE.as_secs()
            ),
            _ => format!(
                "cannot send a mark to {socket}: {}",
                disk::error_words(&error)
            ),
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a datagram. A recorder reads it at once, but a socket can also belong to a program that
/// never does.
fn send(words: &[u8], socket: &Path) -> io::Result<usize> {
    let own = UnixDatagram::unbound()?;
    own.set_write_timeout(Some(PATIENCE))?;
    own.send_to(words, socket)
}

/// Message where no recorder takes marks.
fn no_recorder(socket: &impl Display) -> String {
    format!(
        "no recorder listens at {socket}: start `ticktax record`, or name its folder with --dir"
    )
}

/// The folder to read: the one that was named, else the recorder's or, if only the agent's exists,
/// the agent's.
fn folder(typed: &FolderArguments) -> Result<PathBuf, Failure> {
    if let Some(dir) = &typed.dir {
        return Ok(dir.clone());
    }
    let recorders = StateFolder::Incidents.path("--dir")?;
    let agents = StateFolder::AgentIncidents.path("--dir")?;
    if !recorders.exists() && agents.exists() {
        return Ok(agents);
    }
    Ok(recorders)
}
