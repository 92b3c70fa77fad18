//! Errors of the lab, each one line with a remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ticktax_store::disk;
use ticktax_store::recording::RecordingError;

use crate::image::TooLarge;
use crate::wire::Garbled;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A required program is not installed.
    #[error("cannot run `{program}`: not installed; {remedy}")]
    Missing {
        /// Name of the program.
        program: String,
        /// How to install it.
        remedy: String,
    },
    /// A required program failed.
    #[error("`{program}` failed: {why}")]
    Tool {
        /// The program with its relevant arguments.
        program: String,
        /// Its error message.
        why: String,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}: {why}")]
    File {
        /// The failed action.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The reason and a remedy.
        why: String,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {0}; save its messages with --console FILE")]
    Panic(String),
    /// The guest exceeded its time limit.
    #[error(
        "stopped the guest after {} s ({doing}); raise the limit with --limit, and save the \
         guest's messages with --console FILE",
        limit.as_secs()
    )]
    Hang {
        /// The time limit.
        limit: Duration,
        /// Activity of the guest at that time.
        doing: String,
    },
    /// QEMU ended before the guest had sent its results.
    #[error("the guest ended without a result: {0}")]
    NoResult(String),
    /// The bytes on the serial line are not what the guest sent.
    #[error("{0}: another program wrote to it, and the result is lost")]
    Line(#[from] Garbled),
    /// The user interrupted the run.
    #[error("interrupted; nothing is left running")]
    Interrupted,
    /// The requested guest is impossible.
    #[error("{0}")]
    Senseless(String),
    /// The kernel is not in the cache.
    #[error("{0}")]
    NoKernel(String),
    /// Something in the cache is damaged.
    #[error("the cached {what} is damaged ({why}); remove {path} and try again")]
    Damaged {
        /// Name of the damaged object.
        what: String,
        /// The damage found.
        why: String,
        /// The folder to remove.
        path: PathBuf,
    },
    /// Another lab is working on it.
    #[error("another ticktax lab is building {0}; wait until it finishes")]
    Busy(String),
    /// The recording from the guest is damaged.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file is too large for an initramfs.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl LabError {
    /// A closure that makes the error of doing `what` with the file at `path`.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::of_file(what, &path, &error)
    }

    /// The error of doing `what` with the file at `path`.
    pub fn of_file(what: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::File {
            what,
            why: in_words(error),
            path: path.to_owned(),
        }
    }

    /// The error of starting `program`, which is in the Debian packages `packages`.
    pub(crate) fn start(program: &str, packages: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing {
                program: program.to_owned(),
                remedy: format!("on Debian: apt-get install {packages}"),
            },
            _ => Self::Tool {
                program: program.to_owned(),
                why: error.kind().to_string(),
            },
        }
    }
}

/// Message for a full disk in the lab's folders, with a remedy.
pub(crate) const NO_SPACE: &str =
    "no space left; free some, or set XDG_CACHE_HOME or TMPDIR to a folder with space";

/// Words an I/O error for the user.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE.to_owned(),
        _ => disk::error_words(error),
    }
}
