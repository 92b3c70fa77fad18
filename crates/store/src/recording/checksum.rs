//! Checksums of a recording's file: one CRC-32 for each row group, and one for everything after the
//! last row group, including the footer with the header and the locations of the columns.
//!
//! They are stored in the file's key-value metadata, so other tools can still read the file:
//!
//! ```text
//! ticktax-checksums = crc32 a1b2:0badcafe c3d4:600df00d footer:12345678
//! ```
//!
//! The file is divided into parts, one per row group and one for the footer. The first part starts
//! at the first byte of the file, and each of the others starts where the previous one ends. Each
//! entry consists of the part's end in hexadecimal, a colon, and the part's CRC. The footer's part
//! extends to the end of the file and contains its own checksum, whose eight digits count as zeros.
//! Every byte of the file is therefore covered. A CRC-32 detects every single-bit error and every
//! burst error of up to 32 bits.
//!
//! Parquet's own page checksums cover neither the footer nor the page headers.

use std::io::{self, Write};
use std::ops::Range;

use crc32fast::Hasher;

use crate::parquet_file::{DecodeError, Fetch, Footer};

/// Key of the checksums in the key-value metadata of the file.
pub(super) const KEY: &str = "ticktax-checksums";

/// Name of the writer, which is stored in the footer. Tools that rewrite a file replace it with
/// their own name.
pub(super) const MADE_BY: &str = concat!("ticktax version ", env!("CARGO_PKG_VERSION"));

/// Start of [`MADE_BY`], which is the same in every version.
const MAKER: &str = "ticktax version ";
const METHOD: &str = "crc32";
const FOOTER: &str = "footer:";
const DIGITS: usize = 8;

/// Number of bytes that are read and checked at a time.
const CHUNK: u64 = 1 << 20;

/// The part of the file that belongs to one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowGroupSum {
    /// Offset of the first byte after the part.
    end: u64,
    crc: u32,
}

/// An output that computes checksums of everything written to it.
pub(super) struct SummedOutput {
    inner: Box<dyn Write + Send>,
    hasher: Hasher,
    written: u64,
    parts: Vec<RowGroupSum>,
    /// Footer, held back until its checksum is known.
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

    /// Ends the part of the file that belongs to the current row group.
    pub(super) fn end_part(&mut self) {
        let hasher = std::mem::take(&mut self.hasher);
        self.parts.push(RowGroupSum {
            end: self.written,
            crc: hasher.finalize(),
        });
    }

    /// Holds back everything that is written from now on, until [`SummedOutput::finish`] is called.
    /// Returns the value for [`KEY`], which must be the last entry in the footer.
    pub(super) fn begin_footer(&mut self) -> String {
        self.footer = Some(Vec::new());
        let mut words = vec![METHOD.to_owned()];
        let parts = self.parts.iter();
        words.extend(parts.map(|part| format!("{:x}:{:08x}", part.end, part.crc)));
        words.push(format!("{FOOTER}{:0DIGITS$}", 0));
        words.join(" ")
    }

    /// Inserts the checksum of the footer, and writes the footer.
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

/// Positions of the checksums in a footer's bytes.
struct Digits {
    /// Range that contains the checksums of the row groups.
    parts: Range<usize>,
    /// Range that contains the checksum of the footer itself.
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

/// Why a file does not match its checksums.
#[derive(Debug)]
pub(super) enum Failure {
    Unreadable(DecodeError),
    /// The footer differs from the one that was written.
    Footer,
}

/// Result of looking for checksums in a file.
pub(super) enum FoundChecksums {
    /// The file has no checksums, because another program wrote it.
    None,
    /// The file has no checksums, even though it claims that ticktax wrote it.
    Missing,
    /// The file has checksums for its row groups, and the footer's own checksum is correct.
    Present(Checksums),
}

/// Checksums of the row groups in a file.
#[derive(Debug)]
pub(super) struct Checksums {
    parts: Vec<RowGroupSum>,
}

impl Checksums {
    /// Reads the checksums in a footer, and checks the footer.
    ///
    /// A tool that rewrites a recording may copy the checksums, which then match nothing, but it
    /// also stores its own name as the writer. The name alone is not enough reason to ignore the
    /// checksums, because a single changed byte would then disable them. They are ignored only if
    /// the first row group does not match its checksum either.
    pub(super) fn read(footer: &Footer, fetch: &Fetch) -> Result<FoundChecksums, Failure> {
        let has = |text: &str| memchr::memmem::find(&footer.bytes, text.as_bytes()).is_some();
        match (has(MAKER), has(KEY)) {
            (false, false) => return Ok(FoundChecksums::None),
            (true, false) => return Ok(FoundChecksums::Missing),
            (_, true) => {}
        }
        let failure = match Self::from_footer(footer, fetch) {
            Ok(checksums) => return Ok(FoundChecksums::Present(checksums)),
            Err(failure) => failure,
        };
        let is_own = has(MAKER) || Self::matches_first_part(footer, fetch)?;
        if is_own || !matches!(failure, Failure::Footer) {
            return Err(failure);
        }
        Ok(FoundChecksums::None)
    }

    /// Returns the checksums of the row groups. Fails if the footer does not match its own
    /// checksum.
    fn from_footer(footer: &Footer, fetch: &Fetch) -> Result<Self, Failure> {
        let mut bytes = footer.bytes.to_vec();
        let place = Digits::find(&bytes).ok_or(Failure::Footer)?;
        let parts = parts(&bytes[place.parts]).ok_or(Failure::Footer)?;
        let written = bytes[place.footer.clone()].to_vec();
        bytes[place.footer].fill(b'0');
        // The footer's checksum also covers the bytes between the last row group and the footer,
        // which contain indexes.
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

    fn matches_first_part(footer: &Footer, fetch: &Fetch) -> Result<bool, Failure> {
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

    pub(super) fn check(&self, index: usize, fetch: &Fetch) -> Result<bool, DecodeError> {
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

fn add(hasher: &mut Hasher, range: Range<u64>, fetch: &Fetch) -> Result<(), DecodeError> {
    let mut at = range.start;
    while at < range.end {
        let length = CHUNK.min(range.end - at);
        hasher.update(&fetch(at, usize::try_from(length).unwrap_or(0))?);
        at += length;
    }
    Ok(())
}

fn parts(text: &[u8]) -> Option<Vec<RowGroupSum>> {
    let text = std::str::from_utf8(text).ok()?;
    let part = |word: &str| {
        let (end, crc) = word.split_once(':')?;
        Some(RowGroupSum {
            end: u64::from_str_radix(end, 16).ok()?,
            crc: u32::from_str_radix(crc, 16).ok()?,
        })
    };
    text.split_ascii_whitespace().map(part).collect()
}
