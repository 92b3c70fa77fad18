//! Errors that the lab reports. Each message is a single line that says what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ticktax_store::disk;
use ticktax_store::recording::RecordingError;

use crate::image::TooLarge;
use crate::wire::Garbled;

/// Reason why the lab could not build, fetch or run what the user requested.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program that the lab needs is not installed.
    #[error("cannot run `{program}`: not installed; {remedy}")]
    Missing {
        /// Name of the program.
        program: String,
        /// How to install it.
        remedy: String,
    },
    /// A program run by the lab failed.
    #[error("`{program}` failed: {why}")]
    Tool {
        /// Name of the program, followed by its relevant arguments.
        program: String,
        /// The program's error message.
        why: String,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}: {why}")]
    File {
        /// Verb for the attempted action, such as `read`.
        what: &'static str,
        /// Path of the file concerned.
        path: PathBuf,
        /// Reason for the failure, with a remedy.
        why: String,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {0}; use --console FILE to save its messages")]
    Panic(String),
    /// The guest exceeded its time limit.
    #[error(
        "stopped the guest after {} s ({doing}); raise the limit with --limit, or use --console \
         FILE to save the guest's messages",
        limit.as_secs()
    )]
    Hang {
        /// Time limit of the guest.
        limit: Duration,
        /// Activity of the guest when it reached the limit.
        doing: String,
    },
    /// QEMU exited before the guest sent its results.
    #[error("the guest ended without a result: {0}")]
    NoResult(String),
    /// The bytes on the guest's serial line are not valid frames.
    #[error("{0}: another program wrote to it, so the result is lost; try again")]
    Line(#[from] Garbled),
    /// The user cancelled the run.
    #[error("interrupted; nothing is left running")]
    Interrupted,
    /// The requested guest or build is impossible.
    #[error("{0}")]
    Senseless(String),
    /// The requested kernel does not exist.
    #[error("{0}")]
    NoKernel(String),
    /// A cache entry is damaged.
    #[error("the cached {what} is damaged ({why}); remove {path} and try again")]
    Damaged {
        /// Name of the damaged cache entry.
        what: String,
        /// Description of the damage.
        why: String,
        /// Directory to remove, so that the entry is created again.
        path: PathBuf,
    },
    /// A different process is creating this cache entry.
    #[error("another ticktax lab is building {0}; wait for it to finish")]
    Busy(String),
    /// The recording from the guest is damaged.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file is too large to be put into an initramfs.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Error for text that does not name an architecture, a kernel or a kernel source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text does not name a guest's architecture.
    #[error("invalid guest architecture `{0}`: choose amd64 or arm64")]
    Arch(String),
    /// The text cannot name a kernel.
    #[error(
        "unknown kernel {0}: give a path with a / in it, a Debian package, or a name like hz250 \
         from `ticktax lab build`"
    )]
    Kernel(String),
    /// The text cannot name a kernel's source.
    #[error(
        "invalid source `{0}`: give a Debian package, or a directory or tarball with a / in it"
    )]
    Source(String),
}

impl LabError {
    /// Returns a closure that wraps an I/O error in a [`LabError`]. `what` is a verb for the action
    /// that failed, and `path` is the file concerned.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::of_file(what, &path, &error)
    }

    /// Wraps an I/O error. `what` is a verb for the action that failed, and `path` is the file
    /// concerned.
    pub fn of_file(what: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::File {
            what,
            why: in_words(error),
            path: path.to_owned(),
        }
    }

    /// Wraps the I/O error from an attempt to start `program`. `packages` lists the Debian packages
    /// that contain it.
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

pub(crate) const NO_SPACE: &str =
    "no space left; free some, or set XDG_CACHE_HOME or TMPDIR to a directory with space";

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE.to_owned(),
        _ => disk::error_words(error),
    }
}
