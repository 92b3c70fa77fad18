//! Reads files that the user names. They may belong to someone else, so their size is limited, and
//! other users' pipes are refused.

use std::path::Path;

use ticktax_store::disk::read_input;

use crate::error::LabError;

/// Reads a file. Returns an error if it is larger than `most` MiB.
pub(crate) fn read(file: &Path, most: u32) -> Result<Vec<u8>, LabError> {
    read_input(file, most).map_err(|why| refused(file, why.to_string()))
}

/// Reads a text file of at most 1 MiB.
///
/// # Errors
/// Returns an error if the file cannot be read, is larger than 1 MiB, or is not UTF-8.
pub fn read_text(file: &Path) -> Result<String, LabError> {
    String::from_utf8(read(file, 1)?).map_err(|_| refused(file, "it is not text".to_owned()))
}

fn refused(file: &Path, why: String) -> LabError {
    LabError::File {
        what: "read",
        path: file.to_owned(),
        why,
    }
}
