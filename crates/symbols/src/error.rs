//! Errors of reading symbols.

use std::io;

/// Why the functions of a file are unknown.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// The file is not an executable or library for Linux.
    #[error("not an ELF file")]
    NotElf,
    /// The file contradicts itself.
    #[error("damaged ELF file: {0}")]
    Damaged(&'static str),
    /// A part of the file is larger than ticktax accepts.
    #[error("{part} too large: at most {limit} accepted")]
    TooLarge {
        /// Part of the file.
        part: &'static str,
        /// Largest accepted size or number.
        limit: u64,
    },
    /// The file could not be read.
    #[error("cannot read the file: {}", .0.kind())]
    Io(#[from] io::Error),
}

/// Returns an error if `part` of a file has a size or number above its `limit`.
pub(crate) fn check(part: &'static str, size: u64, limit: u64) -> Result<(), SymbolError> {
    if size > limit {
        return Err(SymbolError::TooLarge { part, limit });
    }
    Ok(())
}
