//! Opens other tools' traces as recordings: ftrace text, perf.data, trace.dat and Perfetto traces.
//!
//! [`open`] detects the format of a file by its contents. A reader for each format turns the file
//! into events, and a converter turns the events into rows, which become a recording in memory. So
//! every verb that reads recordings reads traces too. Anything that a trace lacks becomes a
//! [limitation](ticktax_model::limitation::ImportLimit) of the recording.
#![forbid(unsafe_code)]

mod bytes;
mod convert;
mod error;
mod event;
mod kind;
mod layout;
mod names;
mod perf;
mod perfetto;
mod text;
mod threads;
mod trace_dat;
mod words;

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

use ticktax_store::disk::open_promptly;
use ticktax_store::recording::{RecordingError, RecordingReader};

pub use error::{ImportError, Misfit};
pub use kind::TraceKind;

use kind::{FileKind, HEAD, detect};

/// Opens a recording, or converts another tool's trace to one.
///
/// # Errors
/// Returns [`ImportError::Recording`] for a file that is neither, and another [`ImportError`] for a
/// trace that cannot be converted.
pub fn open(path: impl AsRef<Path>) -> Result<RecordingReader, ImportError> {
    let path = path.as_ref();
    let cannot_read = |error: io::Error| RecordingError::read(path, &error);
    if !fs::metadata(path).map_err(cannot_read)?.is_file() {
        return Ok(RecordingReader::open(path)?);
    }
    let mut file = open_promptly(path).map_err(cannot_read)?;
    let mut head = Vec::new();
    (&file)
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(cannot_read)?;
    file.rewind().map_err(cannot_read)?;
    match detect(&head) {
        FileKind::Other => match RecordingReader::from_file(path, file) {
            Err(RecordingError::NotParquet { path }) => Err(ImportError::Unknown { path }),
            opened => Ok(opened?),
        },
        FileKind::Trace(kind) => convert(path, file, &head, kind),
        FileKind::Wrong(what, remedy) => Err(ImportError::WrongKind {
            path: path.to_owned(),
            what,
            remedy,
        }),
    }
}

/// Returns whether a file is a trace that [`open`] can convert, according to its first bytes.
/// Returns `false` if the file cannot be read.
pub fn is_trace(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    let mut head = Vec::new();
    let read = |file: File| file.take(HEAD as u64).read_to_end(&mut head);
    let is_read = is_file && open_promptly(path).and_then(read).is_ok();
    is_read && matches!(detect(&head), FileKind::Trace(_))
}

fn convert(
    path: &Path,
    file: File,
    head: &[u8],
    kind: TraceKind,
) -> Result<RecordingReader, ImportError> {
    match kind {
        TraceKind::Text => text::read(path, file, head),
        TraceKind::TraceDat => trace_dat::read(path, &file),
        TraceKind::PerfData => perf::read(path, file, head),
        TraceKind::Perfetto => perfetto::read(path, file),
    }
}
