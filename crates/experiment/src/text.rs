//! Reading the files that people write: cases and scenarios.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The longest such file, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// Reads the text of a file, which is a `what`: `case`, `scenario`.
///
/// # Errors
/// A line that names the file, where it cannot be read, is longer than 1 MiB, or is no text.
pub fn read(path: &Path, what: &str) -> Result<String, String> {
    let why = match bytes(path) {
        Ok(bytes) if bytes.len() as u64 > MAX_BYTES => "it is longer than 1 MiB",
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return Ok(text),
            Err(_) => "it is not UTF-8 text",
        },
        Err(error) => match error.kind() {
            ErrorKind::NotFound => "no such file; check the spelling",
            ErrorKind::PermissionDenied => "it may not be read; check its mode",
            ErrorKind::IsADirectory => "it is a folder; name a file in it",
            _ => "the system refuses to read it",
        },
    };
    Err(format!("cannot read the {what} {}: {why}", path.display()))
}

/// A file's bytes, one more than may be at most.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
