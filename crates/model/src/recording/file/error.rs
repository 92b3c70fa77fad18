//! What can go wrong with a recording's file, in words for the person who asked for it.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// Why a recording could not be written or read.
///
/// Each message is one line: what was tried, on which file, why it failed, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be created.
    #[error("cannot create the recording {}: {why}", path.display())]
    Create {
        /// The file asked for.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The file could not be written to its end; nothing of it was kept.
    #[error("cannot write the recording {}: {why}", path.display())]
    Write {
        /// The file asked for.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The file could not be opened or read.
    #[error("cannot read the recording {}: {why}", path.display())]
    Read {
        /// The file asked for.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The file is something else.
    #[error(
        "{} is not a recording, nor a Parquet file at all: name a file that `ticktax audit` wrote",
        path.display()
    )]
    NotParquet {
        /// The file.
        path: PathBuf,
    },
    /// The file begins as a Parquet file does, and does not end as one.
    #[error("{} is cut short: copy it again in full, or record anew", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// The file is Parquet, and was not written by ticktax.
    #[error(
        "{} is a Parquet file but not a ticktax recording: name a file that `ticktax audit` wrote",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The recording's format is newer than this program.
    #[error(
        "{} was written by a newer ticktax (recording schema {found}, this one reads up to {}); \
         update ticktax",
        path.display(), super::super::SCHEMA_VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        found: u64,
    },
    /// The recording says a schema version that no ticktax ever wrote.
    #[error("{} says recording schema {found}, which no ticktax writes: record anew", path.display())]
    UnknownSchema {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        found: u64,
    },
    /// The header cannot be understood.
    #[error("the header of {} is damaged ({why}): copy it again, or record anew", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A column is missing or cannot be decoded.
    #[error(
        "the column `{column}` of {} is damaged ({why}): copy the file again, or record anew",
        path.display()
    )]
    Column {
        /// The file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A word that stands for a kind or an owner is none of those that this version knows.
    #[error(
        "the column `{column}` of {} says `{word}`, which this ticktax does not know: update \
         ticktax, or record anew",
        path.display()
    )]
    UnknownWord {
        /// The file.
        path: PathBuf,
        /// `kind` or `owner`.
        column: &'static str,
        /// The word found.
        word: String,
    },
}

impl RecordingError {
    pub(super) fn create(path: &Path, error: &io::Error) -> Self {
        Self::Create {
            path: path.to_owned(),
            why: words(error.kind()),
        }
    }

    pub(super) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            why: words(error.kind()),
        }
    }

    pub(super) fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: words(error.kind()),
        }
    }
}

/// What an I/O error means and what to do about it. The system's number for it helps nobody.
pub(super) fn words(kind: io::ErrorKind) -> String {
    let words = match kind {
        io::ErrorKind::NotFound => "there is no such file or folder; check the path",
        io::ErrorKind::PermissionDenied => {
            "permission denied; choose a folder of your own, or run as the owner"
        }
        io::ErrorKind::IsADirectory => "it is a folder; name a file in it",
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder",
        io::ErrorKind::StorageFull => "the disk is full; free some space, or choose another disk",
        io::ErrorKind::QuotaExceeded => {
            "your disk quota is used up; free some space, or choose another disk"
        }
        io::ErrorKind::FileTooLarge => {
            "it grew past the largest file allowed; raise `ulimit -f`, or record for less time"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only; choose a folder elsewhere"
        }
        io::ErrorKind::InvalidFilename => "the name is too long or not allowed; choose another",
        io::ErrorKind::UnexpectedEof => "it ends too early; copy it again in full",
        // `ErrorKind` has words of its own for the rest, without a number.
        other => return format!("{other}; try another folder or disk"),
    };
    words.to_owned()
}

/// The reason behind a Parquet error, on one line and without the layers around it.
pub(super) fn parquet_words(error: &ParquetError) -> String {
    let text = match error {
        ParquetError::General(text) | ParquetError::NYI(text) | ParquetError::EOF(text) => {
            text.clone()
        }
        ParquetError::External(inner) => match inner.downcast_ref::<io::Error>() {
            Some(error) => words(error.kind()),
            None => inner.to_string(),
        },
        other => other.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
