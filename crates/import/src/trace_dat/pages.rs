//! Reads the pages of the kernel's ring buffer for one CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::parts::{CpuPart, Fault};
use crate::bytes::{Bytes, number};

/// Bits of a page's `commit` field that contain its length.
const LENGTH: u64 = (1 << 27) - 1;
/// Bit of `commit` which says that events were lost before the page.
const MISSED: u64 = 1 << 31;
/// Bit of `commit` which says that the number of these events follows the data.
const MISSED_STORED: u64 = 1 << 30;

/// Types of entries that are not events. Smaller types are lengths of events.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Number of bits of the time in an entry's header.
const DELTA_BITS: u32 = 27;
/// Number of bits of the time in a time stamp.
const STAMP_BITS: u32 = 59;

/// Maximum size of a page, or of a compressed chunk of pages, in bytes.
const MAX_CHUNK: usize = 64 << 20;

/// The layout of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLayout {
    /// Size of a page in bytes.
    pub(super) size: usize,
    /// Size of the `commit` field in bytes.
    pub(super) commit: usize,
    pub(super) is_big_endian: bool,
}

/// An entry of a ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'p> {
    Event(&'p [u8]),
    /// This many events were lost.
    Lost(u64),
}

/// The pages of a CPU. One page or compressed chunk at a time is in memory.
#[derive(Debug)]
pub(super) struct Pages<'f> {
    file: &'f File,
    cpu: u32,
    layout: PageLayout,
    /// Next byte of the file to read, and the end of the CPU's data.
    next: u64,
    end: u64,
    /// Number of compressed chunks that are left; `None` if the data are not compressed.
    chunks: Option<u32>,
    /// Bytes that have been read, and the start of the next page in them.
    chunk: Vec<u8>,
    chunk_at: usize,
    /// Position in the page and its end, as places in `chunk`.
    at: usize,
    page_end: usize,
    time: u64,
    lost: Option<u64>,
    /// Place in `chunk` of the next event.
    event: Option<(usize, usize)>,
    is_truncated: bool,
}

impl<'f> Pages<'f> {
    pub(super) fn new(
        file: &'f File,
        part: CpuPart,
        is_compressed: bool,
        layout: PageLayout,
    ) -> Result<Self, Fault> {
        if !(64..=MAX_CHUNK).contains(&layout.size) {
            return Err(Fault::Damaged("the size of its pages"));
        }
        let mut this = Self {
            file,
            cpu: part.cpu,
            layout,
            next: part.offset,
            end: part.offset.saturating_add(part.size),
            chunks: None,
            chunk: Vec::new(),
            chunk_at: 0,
            at: 0,
            page_end: 0,
            time: 0,
            lost: None,
            event: None,
            is_truncated: false,
        };
        if is_compressed && part.size > 0 {
            let count = this.read(4)?;
            this.chunks = number(&count, layout.is_big_endian).and_then(|n| n.try_into().ok());
        }
        Ok(this)
    }

    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether the file ends before the CPU's data do.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns the time of the next entry, or `None` after the last one.
    pub(super) fn next_time(&mut self) -> Result<Option<u64>, Fault> {
        loop {
            if self.event.is_some() || self.find_event() {
                return Ok(Some(self.time));
            }
            if !self.next_page()? {
                return Ok(None);
            }
        }
    }

    /// Returns the entry whose time [`Pages::next_time`] returned.
    pub(super) fn take(&mut self) -> Entry<'_> {
        if let Some(lost) = self.lost.take() {
            return Entry::Lost(lost);
        }
        let (from, to) = self.event.take().unwrap_or_default();
        Entry::Event(&self.chunk[from..to])
    }

    /// Finds the next event of the page. Returns whether there is one.
    fn find_event(&mut self) -> bool {
        let is_big_endian = self.layout.is_big_endian;
        while self.at < self.page_end {
            let page = &self.chunk[self.at..self.page_end];
            let mut bytes = Bytes::new(page, is_big_endian);
            let Some(header) = bytes.u32() else {
                break;
            };
            let (kind, delta) = if is_big_endian {
                (header >> DELTA_BITS, header & ((1 << DELTA_BITS) - 1))
            } else {
                (header & 31, header >> 5)
            };
            let delta = u64::from(delta);
            let length = match kind {
                PADDING if delta == 0 => break,
                0 | PADDING | TIME_EXTEND | TIME_STAMP => bytes.u32(),
                words => Some(words * 4),
            };
            let Some(length) = length else {
                break;
            };
            let start = self.at;
            match kind {
                TIME_EXTEND => {
                    let extended = (u64::from(length) << DELTA_BITS) + delta;
                    self.time = self.time.saturating_add(extended);
                    self.at += 8;
                }
                TIME_STAMP => {
                    let high = self.time >> STAMP_BITS << STAMP_BITS;
                    self.time = high | ((u64::from(length) << DELTA_BITS) + delta);
                    self.at += 8;
                }
                PADDING => {
                    self.time = self.time.saturating_add(delta);
                    self.at += 4 + (length as usize).max(4);
                }
                _ => {
                    self.time = self.time.saturating_add(delta);
                    let (from, end) = if kind == 0 {
                        (start + 8, start + 4 + (length as usize).max(4))
                    } else {
                        (start + 4, start + 4 + length as usize)
                    };
                    if end > self.page_end {
                        break;
                    }
                    self.at = end.next_multiple_of(4);
                    self.event = Some((from, end));
                    return true;
                }
            }
        }
        self.at = self.page_end;
        false
    }

    /// Starts the next page. Returns whether there is one.
    fn next_page(&mut self) -> Result<bool, Fault> {
        let PageLayout { size, commit, .. } = self.layout;
        if self.chunk_at + size > self.chunk.len() && !self.next_chunk()? {
            return Ok(false);
        }
        let start = self.chunk_at;
        let page = &self.chunk[start..(start + size).min(self.chunk.len())];
        self.chunk_at += size;
        let mut bytes = Bytes::new(page, self.layout.is_big_endian);
        let header = bytes.u64().zip(bytes.number(commit));
        let Some((time, flags)) = header else {
            return Ok(true);
        };
        let data = start + 8 + commit;
        let length = usize::try_from(flags & LENGTH).unwrap_or(usize::MAX);
        self.time = time;
        self.at = data;
        self.page_end = data.saturating_add(length).min(start + page.len());
        if flags & MISSED != 0 {
            let after = (self.page_end - start).min(page.len());
            let stored = Bytes::new(&page[after..], self.layout.is_big_endian).number(commit);
            let stored = stored.filter(|_| flags & MISSED_STORED != 0);
            self.lost = Some(stored.unwrap_or(1).max(1));
            self.event = Some((data, data));
        }
        Ok(true)
    }

    /// Reads the next page or compressed chunk of pages. Returns whether there was one.
    fn next_chunk(&mut self) -> Result<bool, Fault> {
        self.chunk_at = 0;
        let Some(left) = self.chunks else {
            let size = self.layout.size as u64;
            let length = size.min(self.end.saturating_sub(self.next));
            self.chunk.clear();
            if length == 0 {
                return Ok(false);
            }
            self.chunk = self.read(usize::try_from(length).unwrap_or(0))?;
            return Ok(!self.chunk.is_empty());
        };
        self.chunk.clear();
        if left == 0 {
            return Ok(false);
        }
        self.chunks = Some(left - 1);
        let sizes = self.read(8)?;
        let mut sizes = Bytes::new(&sizes, self.layout.is_big_endian);
        let (Some(packed), Some(unpacked)) = (sizes.u32(), sizes.u32()) else {
            self.is_truncated = true;
            return Ok(false);
        };
        if packed as usize > MAX_CHUNK || unpacked as usize > MAX_CHUNK {
            return Err(Fault::Damaged("the size of a compressed chunk"));
        }
        let packed = self.read(packed as usize)?;
        self.chunk = unpack(&packed, unpacked as usize)?;
        Ok(!self.chunk.is_empty())
    }

    /// Reads `length` bytes of the file, or fewer at its end.
    fn read(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        let bytes = read_at(self.file, self.next, length)?;
        self.next += bytes.len() as u64;
        self.is_truncated |= bytes.len() < length;
        Ok(bytes)
    }
}

/// Reads up to `length` bytes at `offset`.
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
    let available = file.metadata().map_err(Fault::Io)?.len();
    let available = available.saturating_sub(offset);
    let length = length.min(usize::try_from(available).unwrap_or(usize::MAX));
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).map_err(Fault::Io)?;
    Ok(bytes)
}

/// Decompresses data with the algorithm that their first bytes reveal: zstd or zlib.
pub(super) fn unpack(packed: &[u8], length: usize) -> Result<Vec<u8>, Fault> {
    let damaged = || Fault::Damaged("its compressed data");
    if packed.starts_with(b"\x28\xb5\x2f\xfd") {
        return zstd::bulk::decompress(packed, length).map_err(|_| damaged());
    }
    let unpacked = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, length);
    unpacked.map_err(|_| damaged())
}
