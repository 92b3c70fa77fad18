//! Errors that occur when recordings are read or written, with messages for users.

use std::io;
use std::path::{Path, PathBuf};

use ticktax_model::recording::SCHEMA_VERSION;

use crate::disk::{creation_words, error_words, is_full};
use crate::parquet_file::{DecodeError, Excess};

/// Error for a recording that could not be written or read.
///
/// Each message is one line that says what was attempted, on which file, why it failed, and what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be created.
    #[error("cannot create the recording {}: {why}", path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// Reason for the failure, and how to fix it.
        why: String,
    },
    /// The file could not be completed. No part of it was kept.
    #[error("cannot write the recording {}: {why}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Reason for the failure, and how to fix it.
        why: String,
        /// Whether the disk or a quota was full.
        full: bool,
    },
    /// The file could not be opened or read.
    #[error("cannot read the recording {}: {why}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason for the failure, and how to fix it.
        why: String,
    },
    /// The file is not a Parquet file.
    #[error(
        "{} is not a Parquet file, so it cannot be a recording: pass a file that `ticktax audit` \
         saved",
        path.display()
    )]
    NotParquet {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file starts like a Parquet file but does not end like one.
    #[error(
        "{} is truncated or damaged at its end: copy it again, or make a new recording",
        path.display()
    )]
    Truncated {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is a Parquet file, but ticktax did not write it as a recording.
    #[error(
        "{} is a Parquet file but not a ticktax recording: give a file written by `ticktax audit`",
        path.display()
    )]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The recording's schema version is newer than the newest one that this program supports.
    #[error(
        "{} was written by a newer ticktax (recording schema {found}, but this version reads up to \
         {}): update ticktax",
        path.display(), SCHEMA_VERSION
    )]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Schema version that the file contains.
        found: u64,
    },
    /// The recording has a schema version that no version of ticktax has ever written.
    #[error("{} has recording schema {found}, which no version of ticktax writes: make a new \
        recording", path.display())]
    UnknownSchema {
        /// Path of the file.
        path: PathBuf,
        /// Schema version that the file contains.
        found: u64,
    },
    /// A part of the file does not match its checksum.
    #[error(
        "{} is damaged: {what}; copy it again, or make a new recording",
        path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Name of the damaged part.
        what: String,
    },
    /// Reading the file would take too much memory, or the file contains an impossible number.
    #[error("cannot read {}: {why}", path.display())]
    Refused {
        /// Path of the file.
        path: PathBuf,
        /// Reason for the failure, and how to fix it.
        why: Excess,
    },
    /// The header is malformed.
    #[error("the header of {} is damaged ({why}): copy it again, or make a new \
        recording", path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// Why the header is malformed.
        why: String,
    },
    /// A column is missing or cannot be decoded.
    #[error(
        "the column `{column}` of {} is damaged ({why}): copy the file again, or make a new \
         recording",
        path.display()
    )]
    Column {
        /// Path of the file.
        path: PathBuf,
        /// Name of the column.
        column: &'static str,
        /// Why the column is damaged.
        why: String,
    },
    /// The file contains a kind, owner or edge that this version does not know.
    #[error(
        "the column `{column}` of {} contains `{word}`, which this version does not know: update \
         ticktax, or make a new recording",
        path.display()
    )]
    UnknownWord {
        /// Path of the file.
        path: PathBuf,
        /// Name of the column.
        column: &'static str,
        /// Unknown word.
        word: String,
    },
}

impl RecordingError {
    pub(super) fn create(path: &Path, error: &io::Error) -> Self {
        Self::Create {
            path: path.to_owned(),
            why: creation_words(path, error),
        }
    }

    pub(super) fn refused(path: &Path, why: Excess) -> Self {
        let path = path.to_owned();
        match why {
            Excess::Unreadable(why) => Self::Read { path, why },
            why => Self::Refused { path, why },
        }
    }

    pub(super) fn undecodable(path: &Path, why: &DecodeError) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }

    pub(super) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            why: error_words(error),
            full: is_full(error.kind()),
        }
    }

    /// Wraps an error from opening or reading a file.
    pub fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: error_words(error),
        }
    }
}
