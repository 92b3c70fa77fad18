//! Reading the files that people write, cases and scenarios, and documents of ticktax.

use std::path::Path;

use ticktax_model::disk::read_input;

/// The longest file of a person, in MiB.
pub const MAX_MIB: u32 = 1;
/// The longest document of ticktax, as JSON, in MiB.
const MAX_DOCUMENT_MIB: u32 = 64;

/// Reads a document that ticktax wrote as JSON.
///
/// # Errors
/// The reason: it cannot be read, or is longer than 64 MiB.
pub fn read_document(path: &Path) -> Result<Vec<u8>, String> {
    read_input(path, MAX_DOCUMENT_MIB)
}

/// Reads the text of a file, which is a `what`: `case`, `scenario`.
///
/// # Errors
/// A line that names the file, where it cannot be read, is longer than 1 MiB, or is no text.
pub fn read(path: &Path, what: &str) -> Result<String, String> {
    let text = read_input(path, MAX_MIB)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned()));
    text.map_err(|why| format!("cannot read the {what} {}: {why}", path.display()))
}
