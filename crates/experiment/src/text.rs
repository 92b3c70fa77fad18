//! Reads files written by people (cases and scenarios) and documents written by ticktax.

use std::path::Path;

use ticktax_store::disk::read_input;

/// Maximum size of a file written by a person, in MiB.
pub const MAX_MIB: u32 = 1;
/// Maximum size of a ticktax document in JSON, in MiB.
const MAX_DOCUMENT_MIB: u32 = 64;

/// Reads a JSON document written by ticktax.
///
/// # Errors
/// Returns the reason if the file is unreadable or larger than 64 MiB.
pub fn read_document(path: &Path) -> Result<Vec<u8>, String> {
    read_input(path, MAX_DOCUMENT_MIB)
}

/// Reads a text file. `what` names its type in error messages: `case` or `scenario`.
///
/// # Errors
/// Returns one line with the file and the reason if the file is unreadable, larger than 1 MiB, or
/// not UTF-8.
pub fn read(path: &Path, what: &str) -> Result<String, String> {
    let text = read_input(path, MAX_MIB)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned()));
    text.map_err(|why| format!("cannot read the {what} {}: {why}", path.display()))
}
