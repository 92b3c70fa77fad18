//! Why the lab could not do what was asked: a line each, with what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ticktax_store::disk;
use ticktax_store::recording::RecordingError;

use crate::image::TooLarge;
use crate::wire::Garbled;

/// Everything that goes wrong in a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program that the lab needs is not there.
    #[error("cannot run `{program}`: it is not installed; {remedy}")]
    Missing {
        /// Which.
        program: String,
        /// How to get it.
        remedy: String,
    },
    /// A program that the lab needs did not do its work.
    #[error("`{program}` failed: {why}")]
    Tool {
        /// With its arguments, as far as they tell something.
        program: String,
        /// Its last words.
        why: String,
    },
    /// A file could not be read, written or moved.
    #[error("cannot {what} {path}: {why}")]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// The guest's kernel gave up.
    #[error("the guest's kernel panicked: {0}; --console FILE keeps all that it said")]
    Panic(String),
    /// Nothing more came from the guest.
    #[error(
        "the guest did not end within {} s ({doing}), and was ended; give it longer with --limit, \
         and --console FILE keeps what it said",
        limit.as_secs()
    )]
    Hang {
        /// How long it was given.
        limit: Duration,
        /// How far it had come.
        doing: String,
    },
    /// QEMU ended before the guest had handed over its results.
    #[error("the guest ended without a result: {0}")]
    NoResult(String),
    /// What came over the line is not what the guest sent.
    #[error("{0}: something else wrote to it; the result is lost")]
    Line(#[from] Garbled),
    /// It was interrupted.
    #[error("interrupted; nothing is left running")]
    Interrupted,
    /// The machine of a guest makes no sense.
    #[error("{0}")]
    Senseless(String),
    /// A kernel that is not in the cache.
    #[error("{0}")]
    NoKernel(String),
    /// What lies in the cache is not what was put there.
    #[error("the cached {what} is damaged ({why}); remove {path} and run it again")]
    Damaged {
        /// Which.
        what: String,
        /// How that shows.
        why: String,
        /// The folder to remove.
        path: PathBuf,
    },
    /// Another lab is at it.
    #[error("another ticktax lab is making {0}; wait until it is done")]
    Busy(String),
    /// The recording that came from the guest is damaged.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file is too large for an initramfs.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl LabError {
    /// The failure to do `what` with the file at `path`.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::of_file(what, &path, &error)
    }

    /// That `what` cannot be done with the file at `path`, because of `error`.
    pub fn of_file(what: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::File {
            what,
            why: in_words(error),
            path: path.to_owned(),
        }
    }

    /// The failure to start `program`, which comes in the packages `remedy` names.
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

/// Where the lab keeps things is full, and what to do.
pub(crate) const NO_SPACE: &str =
    "no space is left there; make room, or set XDG_CACHE_HOME or TMPDIR to where there is";

/// Why a file operation failed, for people.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE.to_owned(),
        _ => disk::error_words(error),
    }
}
