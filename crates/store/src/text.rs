//! Reads files that people write (cases and scenarios), and documents that ticktax writes.

use std::path::{Path, PathBuf};

use crate::disk::{InputError, read_input};

/// Maximum size of a file written by a person, in MiB.
pub const MAX_MIB: u32 = 1;
/// Maximum size of a JSON document written by ticktax, in MiB.
const MAX_DOCUMENT_MIB: u32 = 64;

/// Why a text file could not be read. The message is one line.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file is unreadable or too large.
    #[error("cannot read the {file_type} {}: {source}", path.display())]
    Unreadable {
        /// Type of the file: `case` or `scenario`.
        file_type: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: InputError,
    },
    /// The file is not UTF-8.
    #[error("cannot read the {file_type} {}: not UTF-8 text", path.display())]
    NotUtf8 {
        /// Type of the file: `case` or `scenario`.
        file_type: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
}

/// Reads a JSON document that ticktax wrote.
///
/// # Errors
/// Returns an error if the file is unreadable or larger than 64 MiB.
pub fn read_document(path: &Path) -> Result<Vec<u8>, InputError> {
    read_input(path, MAX_DOCUMENT_MIB)
}

/// Reads a text file. `file_type` names its type in error messages: `case` or `scenario`.
///
/// # Errors
/// Returns [`TextError::Unreadable`] if the file is unreadable or larger than 1 MiB, and
/// [`TextError::NotUtf8`] if it is not UTF-8.
pub fn read(path: &Path, file_type: &'static str) -> Result<String, TextError> {
    let bytes = read_input(path, MAX_MIB).map_err(|source| TextError::Unreadable {
        file_type,
        path: path.to_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|_| TextError::NotUtf8 {
        file_type,
        path: path.to_owned(),
    })
}
