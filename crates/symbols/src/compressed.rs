//! Symbols that are compressed inside a stripped file (`.gnu_debugdata`).
//!
//! Some distributions remove the symbol table of a program, but add a small ELF file to it, in XZ
//! format. It has the symbols that the table of exported symbols lacks.

use std::io::{Cursor, Read, Seek, SeekFrom};

use lzma_rust2::XzReader;

use crate::error::check;
use crate::{Pause, SymbolError};

/// Maximum size before decompression, in bytes.
const MOST_COMPRESSED: u64 = 16 << 20;

/// Maximum size after decompression, in bytes. The symbols of a program of 100 MB take about 10 MB.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// Maximum memory of the decompressor, in KiB. `xz -9` needs this much.
const MOST_MEMORY_KIB: u32 = 66 << 10;

/// Number of bytes that are decompressed at once, which takes some tens of microseconds.
const CHUNK: usize = 4 << 10;

/// Decompresses the `size` bytes at `offset` to at most `most` bytes.
pub(crate) fn decompress(
    file: &mut (impl Read + Seek),
    offset: u64,
    size: u64,
    most: u64,
    pause: Pause<'_>,
) -> Result<Cursor<Vec<u8>>, SymbolError> {
    check("compressed symbols", size, MOST_COMPRESSED)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut compressed = Vec::new();
    file.take(size).read_to_end(&mut compressed)?;
    let mut reader = XzReader::new_mem_limit(&*compressed, false, MOST_MEMORY_KIB);
    let (mut bytes, mut chunk) = (Vec::new(), [0; CHUNK]);
    loop {
        let read = reader.read(&mut chunk);
        let length = read.map_err(|_| SymbolError::Damaged("compressed symbols"))?;
        if length == 0 {
            return Ok(Cursor::new(bytes));
        }
        bytes.extend_from_slice(&chunk[..length]);
        check("decompressed symbols", bytes.len() as u64, most)?;
        pause();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use lzma_rust2::{XzOptions, XzWriter};

    use super::decompress;

    const MOST: u64 = 1 << 20;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn decompressed(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        let result = decompress(&mut Cursor::new(bytes), 0, size as u64, MOST, &mut || {});
        result.ok().map(Cursor::into_inner)
    }

    #[test]
    fn damaged_or_huge_data_is_refused() {
        let text = b"symbols".repeat(1_000);
        let bytes = compressed(&text);
        assert_eq!(decompressed(&bytes, bytes.len()), Some(text));
        assert_eq!(decompressed(&bytes, bytes.len() - 20), None);
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        assert_eq!(decompressed(&damaged, damaged.len()), None);
        assert_eq!(decompressed(b"", 0), None);
        let zeros = vec![0; 1 << 20];
        let largest = compressed(&zeros);
        assert_eq!(decompressed(&largest, largest.len()), Some(zeros));
        let bomb = compressed(&vec![0; (1 << 20) + 1]);
        assert_eq!(decompressed(&bomb, bomb.len()), None);
    }
}
