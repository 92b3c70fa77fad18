//! What can go wrong with a recording's file, in words for the person who asked for it.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Excess, creation_words, error_words, is_full};

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
        /// Whether there was no space left, on the disk or of a quota.
        full: bool,
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
    #[error(
        "{} is cut short, or damaged at its end: copy it again in full, or record anew",
        path.display()
    )]
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
    /// A part of the file is not what was written, by its checksum.
    #[error(
        "{} is damaged: {what}, by the checksum; copy it again, or record anew",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
    },
    /// Reading the file would take too much memory, or a number in it cannot be true.
    #[error("{} is not read: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        why: Excess,
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
            why: creation_words(error),
        }
    }

    pub(super) fn refused(path: &Path, why: Excess) -> Self {
        let path = path.to_owned();
        match why {
            Excess::Unreadable(why) => Self::Read { path, why },
            why => Self::Refused { path, why },
        }
    }

    pub(super) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            why: error_words(error),
            full: is_full(error.kind()),
        }
    }

    /// A file that cannot be opened or read.
    pub fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: error_words(error),
        }
    }
}
