//! `ticktax incidents` lists and explains the delays that flight recorders caught. `ticktax mark`
//! asks a running recorder to keep the last few seconds.

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
use crate::output::{self, Output};
use crate::part::Selection;
use crate::report::{self, Showing};
use crate::state::StateFolder;
use crate::terminal::Terminal;
use crate::wall_clock;

/// Name of the recorder's socket in its incidents directory.
pub(crate) const SOCKET: &str = "mark.sock";
/// Time limit for the recorder to accept a mark.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of the note in a mark, in bytes.
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
                    "cannot report on incident {number}: its recording was deleted; omit \
                     --report"
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
        (html, _) => output::put(&document, html, Output::to_stdout(typed.format), terminal)?,
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
                profiles_waits: false,
            };
            report::show(folder.recording(&name)?, showing, terminal)
        }
    }
}

/// Prints an incident, and writes an HTML page that shows its recording on a timeline.
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
    output::put_page(page.finish_with_rows(&ended), document, format, terminal)
}

fn unknown(number: u64, index: &IncidentIndex, folder: &Path) -> Failure {
    let hint = match index.last_number() {
        0 => "the directory is empty".to_owned(),
        last => format!("the last incident is {last}"),
    };
    Failure::Incidents(format!(
        "no incident {number} in {}: {hint}; list them with `ticktax incidents`",
        folder.display()
    ))
}

/// Reads the index of the incidents, and adds those whose recordings are not in the index yet.
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

/// Explains the incident in a recording that is not in the index, or returns `None` if the
/// recording was not saved by a trigger.
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

pub(crate) fn mark(typed: &MarkArguments) -> Result<ExitCode, Failure> {
    let socket = folder(&typed.folder)?.join(SOCKET);
    let words = typed.words.join(" ");
    if words.len() > WORDS_MAX {
        return Err(Failure::Arguments(format!(
            "the note is too long: shorten it to {WORDS_MAX} bytes"
        )));
    }
    // Do not follow a symbolic link, because it could lead to another program's socket.
    let is_socket = fs::symlink_metadata(&socket).map(|facts| facts.file_type().is_socket());
    let sent = match is_socket {
        Ok(true) => send(words.as_bytes(), &socket),
        Ok(false) => Err(io::ErrorKind::ConnectionRefused.into()),
        Err(error) => Err(error),
    };
    sent.map_err(|error| {
        let socket = socket.display();
        // The recorder's socket is a datagram socket, so a stream socket must belong to another
        // program.
        let is_stream = error.raw_os_error() == Some(Errno::EPROTOTYPE as i32);
        Failure::Incidents(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => no_recorder(&socket),
            _ if is_stream => no_recorder(&socket),
            io::ErrorKind::WouldBlock => format!(
                "the recorder at {socket} did not respond within {} s, so nothing was saved: \
                 restart it if it \
                 hangs",
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

/// Sends a datagram, with a time limit. A recorder reads it immediately, but the socket may belong
/// to a program that never reads.
fn send(words: &[u8], socket: &Path) -> io::Result<usize> {
    let own = UnixDatagram::unbound()?;
    own.set_write_timeout(Some(PATIENCE))?;
    own.send_to(words, socket)
}

fn no_recorder(socket: &impl Display) -> String {
    format!(
        "no recorder is listening at {socket}: start `ticktax record`, or give its directory with \
         --dir"
    )
}

/// Returns the directory to read: the one given by the user or, by default, the recorder's. If only
/// the agent's directory exists, returns that one.
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
