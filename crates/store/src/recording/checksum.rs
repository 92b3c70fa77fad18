//! Checksums of a recording: a CRC-32 of each row group, and one of everything after the last row
//! group, which includes the footer with the header and the offsets of the columns.
//!
//! They are in the key-value metadata, so every Parquet tool can still read the file:
//!
//! ```text
//! ticktax-checksums = crc32 a1b2:0badcafe c3d4:600df00d footer:12345678
//! ```
//!
//! Each word describes one part: the offset of its end in hexadecimal, a colon, and its CRC. The
//! first part starts at the first byte of the file, every other one where the previous part ends.
//! The last part reaches to the end of the file and contains its own checksum, whose eight digits
//! count as zeros. So the checksums cover every byte. A CRC-32 detects every flipped bit and every
//! burst of up to 32 bits.
//!
//! Parquet's own page checksums cover neither the footer nor the page headers.

use std::io::{self, Write};
use std::ops::Range;

use crc32fast::Hasher;

use crate::parquet_file::{Fetch, Footer};

/// The key of the checksums in the file's key-value metadata.
pub(super) const KEY: &str = "ticktax-checksums";

/// Name of the writer in the footer. A tool that rewrites the file puts its own name there.
pub(super) const MADE_BY: &str = concat!("ticktax version ", env!("CARGO_PKG_VERSION"));

/// Start of [`MADE_BY`] in every version.
const MAKER: &str = "ticktax version ";
const METHOD: &str = "crc32";
const FOOTER: &str = "footer:";
const DIGITS: usize = 8;

/// Bytes read and hashed at once.
const CHUNK: u64 = 1 << 20;

/// The part of the file that holds a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Offset of the first byte after it.
    end: u64,
    crc: u32,
}

/// A writer that computes the checksums of the bytes it passes on.
pub(super) struct SummedOutput {
    inner: Box<dyn Write + Send>,
    hasher: Hasher,
    written: u64,
    parts: Vec<Part>,
    /// The footer, held back until its checksum is known.
    footer: Option<Vec<u8>>,
}

impl SummedOutput {
    pub(super) fn new(inner: Box<dyn Write + Send>) -> Self {
        Self {
            inner,
            hasher: Hasher::new(),
            written: 0,
            parts: Vec::new(),
            footer: None,
        }
    }

    /// Ends the part of the current row group.
    pub(super) fn end_part(&mut self) {
        let hasher = std::mem::take(&mut self.hasher);
        self.parts.push(Part {
            end: self.written,
            crc: hasher.finalize(),
        });
    }

    /// Holds back all bytes from here on until [`SummedOutput::finish`]. Returns the value for
    /// [`KEY`], which must become the last entry of the metadata in the footer.
    pub(super) fn begin_footer(&mut self) -> String {
        self.footer = Some(Vec::new());
        let mut words = vec![METHOD.to_owned()];
        let parts = self.parts.iter();
        words.extend(parts.map(|part| format!("{:x}:{:08x}", part.end, part.crc)));
        words.push(format!("{FOOTER}{:0DIGITS$}", 0));
        words.join(" ")
    }

    /// Writes the footer with its checksum.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let mut footer = self.footer.take().unwrap_or_default();
        let place = Digits::find(&footer).ok_or(io::ErrorKind::InvalidData)?;
        let crc = crc32fast::hash(&footer);
        footer[place.footer].copy_from_slice(format!("{crc:08x}").as_bytes());
        self.inner.write_all(&footer)?;
        self.inner.flush()
    }
}

impl Write for SummedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(footer) = &mut self.footer {
            footer.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Position of the checksums in the bytes of a footer.
struct Digits {
    /// The words of all row groups.
    parts: Range<usize>,
    /// The digits of the last checksum.
    footer: Range<usize>,
}

impl Digits {
    fn find(bytes: &[u8]) -> Option<Self> {
        let key = memchr::memmem::rfind(bytes, KEY.as_bytes())? + KEY.len();
        let parts = key + memchr::memmem::find(&bytes[key..], METHOD.as_bytes())? + METHOD.len();
        let end = parts + memchr::memmem::find(&bytes[parts..], FOOTER.as_bytes())?;
        let digits = end + FOOTER.len();
        (digits + DIGITS <= bytes.len()).then_some(Self {
            parts: parts..end,
            footer: digits..digits + DIGITS,
        })
    }
}

/// Why the checksums of a file do not match.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The file could not be read.
    Unreadable(String),
    /// The footer was changed.
    Footer,
}

/// The checksums in a file.
pub(super) enum Found {
    /// None, because another program wrote the file.
    None,
    /// None, although the file names ticktax as its writer.
    Missing,
    /// The checksums of the row groups. That of the footer matched.
    Parts(Checksums),
}

/// The checksums of a file's row groups.
#[derive(Debug)]
pub(super) struct Checksums {
    parts: Vec<Part>,
}

impl Checksums {
    /// Reads the checksums in a footer, and checks the footer.
    ///
    /// A tool that rewrites a recording may copy the checksums, which then match nothing, and names
    /// itself as the writer. The name alone must not decide, because changing one byte of it would
    /// disable the checksums. They are ignored only if the first row group does not match either.
    pub(super) fn read(footer: &Footer, fetch: &Fetch) -> Result<Found, Failure> {
        let has = |text: &str| memchr::memmem::find(&footer.bytes, text.as_bytes()).is_some();
        match (has(MAKER), has(KEY)) {
            (false, false) => return Ok(Found::None),
            (true, false) => return Ok(Found::Missing),
            (_, true) => {}
        }
        let failure = match Self::of_footer(footer, fetch) {
            Ok(checksums) => return Ok(Found::Parts(checksums)),
            Err(failure) => failure,
        };
        let is_own = has(MAKER) || Self::is_of_first_part(footer, fetch)?;
        if is_own || failure != Failure::Footer {
            return Err(failure);
        }
        Ok(Found::None)
    }

    /// The checksums of the row groups, if that of the footer matches.
    fn of_footer(footer: &Footer, fetch: &Fetch) -> Result<Self, Failure> {
        let mut bytes = footer.bytes.to_vec();
        let place = Digits::find(&bytes).ok_or(Failure::Footer)?;
        let parts = parts(&bytes[place.parts]).ok_or(Failure::Footer)?;
        let written = bytes[place.footer.clone()].to_vec();
        bytes[place.footer].fill(b'0');
        // The last part includes the indexes before the footer.
        let start = parts.last().map_or(0, |part| part.end);
        let end = footer.begin + bytes.len() as u64;
        let mut hasher = Hasher::new();
        add(&mut hasher, start..footer.begin, fetch).map_err(Failure::Unreadable)?;
        hasher.update(&bytes);
        hasher.update(&fetch(end, 8).map_err(Failure::Unreadable)?);
        if written != format!("{:08x}", hasher.finalize()).as_bytes() {
            return Err(Failure::Footer);
        }
        Ok(Self { parts })
    }

    /// Whether the first row group matches its checksum in the footer.
    fn is_of_first_part(footer: &Footer, fetch: &Fetch) -> Result<bool, Failure> {
        let place = Digits::find(&footer.bytes);
        let parts = place.and_then(|place| parts(&footer.bytes[place.parts]));
        let first = parts.and_then(|parts| parts.first().copied());
        let Some(first) = first.filter(|first| first.end <= footer.begin) else {
            return Ok(false);
        };
        let mut hasher = Hasher::new();
        add(&mut hasher, 0..first.end, fetch).map_err(Failure::Unreadable)?;
        Ok(hasher.finalize() == first.crc)
    }

    /// Whether row group `index` matches its checksum.
    pub(super) fn check(&self, index: usize, fetch: &Fetch) -> Result<bool, String> {
        let Some(part) = self.parts.get(index) else {
            return Ok(false);
        };
        let before = index.checked_sub(1).and_then(|index| self.parts.get(index));
        let start = before.map_or(0, |part| part.end);
        let mut hasher = Hasher::new();
        add(&mut hasher, start..part.end, fetch)?;
        Ok(hasher.finalize() == part.crc)
    }
}

/// Hashes a range of the file.
fn add(hasher: &mut Hasher, range: Range<u64>, fetch: &Fetch) -> Result<(), String> {
    let mut at = range.start;
    while at < range.end {
        let length = CHUNK.min(range.end - at);
        hasher.update(&fetch(at, usize::try_from(length).unwrap_or(0))?);
        at += length;
    }
    Ok(())
}

/// Parses the words of the row groups.
fn parts(text: &[u8]) -> Option<Vec<Part>> {
    let text = std::str::from_utf8(text).ok()?;
    let part = |word: &str| {
        let (end, crc) = word.split_once(':')?;
        Some(Part {
            end: u64::from_str_radix(end, 16).ok()?,
            crc: u32::from_str_radix(crc, 16).ok()?,
        })
    };
    text.split_ascii_whitespace().map(part).collect()
}
