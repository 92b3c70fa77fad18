//! Errors that occur when a trace is opened, with messages for users.

use std::io;
use std::path::{Path, PathBuf};

use ticktax_store::disk::error_words;
use ticktax_store::recording::RecordingError;

pub use crate::convert::Misfit;
use crate::kind::TraceKind;

/// Error for a file that could not be opened as a recording or as another tool's trace. Each
/// message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is a recording, or nothing known, and could not be opened as a recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The file is a trace that could not be read.
    #[error("cannot read the {} {}: {why}", kind.name(), path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        kind: TraceKind,
        /// Reason, and what to do.
        why: String,
    },
    /// The trace contains an event that cannot belong to it.
    #[error("cannot read the {} {}: {why}", kind.name(), path.display())]
    Misfit {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        kind: TraceKind,
        /// The event's fault.
        why: Misfit,
    },
    /// The trace has no context switches, so it does not show when each thread ran.
    #[error(
        "the {} {} has no sched_switch events{}, so it does not show which threads ran: record \
         {}",
        kind.name(),
        path.display(),
        if *events == 0 { "" } else { " (but others)" },
        kind.remedy()
    )]
    NoSwitches {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        kind: TraceKind,
        /// Number of other events.
        events: u64,
    },
    /// The file's format is not known.
    #[error(
        "{} is not a recording, nor a trace of perf, trace-cmd, ftrace or Perfetto: pass a file \
         that `ticktax audit --save` or `perf sched record` wrote",
        path.display()
    )]
    Unknown {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has a known format that cannot be imported.
    #[error("{} is {what}, not a recording or a trace of the scheduler: {remedy}", path.display())]
    WrongKind {
        /// Path of the file.
        path: PathBuf,
        /// Name of the format.
        what: &'static str,
        /// Advice for the user.
        remedy: &'static str,
    },
}

impl ImportError {
    pub(crate) fn io(path: &Path, kind: TraceKind, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            kind,
            why: error_words(error),
        }
    }

    pub(crate) fn read(path: &Path, kind: TraceKind, why: impl Into<String>) -> Self {
        Self::Read {
            path: path.to_owned(),
            kind,
            why: why.into(),
        }
    }

    pub(crate) fn misfit(path: &Path, kind: TraceKind, why: Misfit) -> Self {
        Self::Misfit {
            path: path.to_owned(),
            kind,
            why,
        }
    }
}
