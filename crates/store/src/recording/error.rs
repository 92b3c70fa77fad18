//! Errors of reading and writing recordings.

use std::io;
use std::path::{Path, PathBuf};

use ticktax_model::recording::SCHEMA_VERSION;

use crate::disk::{creation_words, error_words, is_full};
use crate::parquet_file::Excess;

/// A recording that could not be written or read.
///
/// Each message is one line: what was tried, on which file, why it failed, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be created.
    #[error("cannot create the recording {}: {why}", path.display())]
    Create {
        /// The file that was to be written.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
    /// The file could not be completed. Nothing of it was kept.
    #[error("cannot write the recording {}: {why}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
        /// Whether the disk is full, or a quota used up.
        full: bool,
    },
    /// The file could not be opened or read.
    #[error("cannot read the recording {}: {why}", path.display())]
    Read {
        /// The file that was to be written.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
    /// The file is not a Parquet file.
    #[error(
        "{} is not a recording, nor a Parquet file at all: name a file that `ticktax audit` wrote",
        path.display()
    )]
    NotParquet {
        /// The file.
        path: PathBuf,
    },
    /// The file starts like a Parquet file but does not end like one.
    #[error(
        "{} is cut short, or damaged at its end: copy it again in full, or record anew",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// The file is a Parquet file of another program.
    #[error(
        "{} is a Parquet file but not a ticktax recording: name a file that `ticktax audit` wrote",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The schema of the recording is newer than this program.
    #[error(
        "{} was written by a newer ticktax (recording schema {found}, this one reads up to {}); \
         update ticktax",
        path.display(), SCHEMA_VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u64,
    },
    /// The schema of the recording is one that no release wrote.
    #[error(
        "{} says recording schema {found}, which no ticktax writes: record anew",
        path.display()
    )]
    UnknownSchema {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u64,
    },
    /// A part of the file does not match its checksum.
    #[error(
        "{} is damaged: {what}, by the checksum; copy it again, or record anew",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damaged part.
        what: String,
    },
    /// Reading the file would take too much memory, or it holds an impossible number.
    #[error("{} is not read: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Reason and remedy.
        why: Excess,
    },
    /// The header cannot be parsed.
    #[error("the header of {} is damaged ({why}): copy it again, or record anew", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The reason.
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
        /// The column.
        column: &'static str,
        /// The reason.
        why: String,
    },
    /// A row has a kind, an owner or an edge that this version does not know.
    #[error(
        "the column `{column}` of {} says `{word}`, which this ticktax does not know: update \
         ticktax, or record anew",
        path.display()
    )]
    UnknownWord {
        /// The file.
        path: PathBuf,
        /// `kind`, `owner` or `edge`.
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

    /// A file could not be opened or read.
    pub fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: error_words(error),
        }
    }
}
