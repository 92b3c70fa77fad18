//! Reading the files that people write: cases and scenarios.

use std::path::Path;

use ticktax_model::disk::{error_words, read_input};

/// The longest such file, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// The longest document of ticktax, as JSON, in bytes.
const MAX_DOCUMENT: u64 = 64 << 20;

/// Reads a document that ticktax wrote as JSON.
///
/// # Errors
/// The reason: it cannot be read, or is longer than 64 MiB.
pub fn read_document(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = read_input(path, MAX_DOCUMENT).map_err(|error| error_words(&error))?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err("it is longer than 64 MiB".to_owned());
    }
    Ok(bytes)
}

/// Reads the text of a file, which is a `what`: `case`, `scenario`.
///
/// # Errors
/// A line that names the file, where it cannot be read, is longer than 1 MiB, or is no text.
pub fn read(path: &Path, what: &str) -> Result<String, String> {
    let refused = |why: &str| format!("cannot read the {what} {}: {why}", path.display());
    let bytes = read_input(path, MAX_BYTES).map_err(|error| refused(&error_words(&error)))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refused("it is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| refused("it is not UTF-8 text"))
}
