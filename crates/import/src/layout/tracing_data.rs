//! The description of a kernel's events at the start of a trace.dat file, which perf.data files
//! contain as one of their sections.

use std::ops::ControlFlow;

use super::{Field, Layouts};
use crate::bytes::Bytes;

/// First bytes of the description.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Maximum number of event groups, and of events in a group. Kernels have a few hundred.
const MAX_EVENTS: u32 = 100_000;

/// The description of a kernel's events, up to the names of functions.
#[derive(Debug)]
pub(crate) struct TracingData<'b> {
    /// Version of the format: 6, or 7 if sections follow.
    pub(crate) version: u32,
    /// Size of the kernel's `long` in bytes.
    pub(crate) long_size: usize,
    /// Size of a page of the kernel's ring buffer in bytes.
    pub(crate) page_size: usize,
    pub(crate) is_big_endian: bool,
    /// Size of the `commit` field of the ring buffer's pages, or 0 if it is not known.
    pub(crate) commit_size: usize,
    /// The bytes that follow.
    pub(crate) rest: Bytes<'b>,
}

impl<'b> TracingData<'b> {
    /// Reads the first fields. Returns `None` if the bytes are damaged.
    pub(crate) fn begin(bytes: &'b [u8]) -> Option<Self> {
        let mut start = Bytes::new(bytes, false);
        start.skip(MAGIC)?;
        let version = str::from_utf8(start.text()?).ok()?;
        let version = version.trim_start_matches("0.").parse().ok()?;
        let is_big_endian = start.u8()? == 1;
        let long_size = start.u8()?.into();
        let rest = start.take(start.len())?;
        let mut rest = Bytes::new(rest, is_big_endian);
        let page_size = usize::try_from(rest.u32()?).ok()?;
        Some(Self {
            version,
            long_size,
            page_size,
            is_big_endian,
            commit_size: 0,
            rest,
        })
    }

    /// Reads the descriptions of the events and the names of functions into `layouts`, and skips
    /// the formats of messages. Returns `None` if the bytes are damaged.
    pub(crate) fn read(&mut self, layouts: &mut Layouts) -> Option<()> {
        self.commit_size = Self::headers(&mut self.rest)?;
        self.events(layouts)?;
        layouts.add_symbols(self.rest.block(4)?);
        // Formats of `trace_printk` messages.
        self.rest.block(4)?;
        Some(())
    }

    /// Reads the descriptions of the ring buffer's pages and entries. Returns the size of the
    /// pages' `commit` field, or 0 if it is not described.
    pub(crate) fn headers(bytes: &mut Bytes<'_>) -> Option<usize> {
        bytes.skip(b"header_page\0")?;
        let page = String::from_utf8_lossy(bytes.block(8)?);
        bytes.skip(b"header_event\0")?;
        bytes.block(8)?;
        let mut fields = page.lines().filter_map(Field::parse);
        let commit = fields.find(|(name, _)| *name == "commit");
        Some(commit.map_or(0, |(_, field)| field.size))
    }

    fn events(&mut self, layouts: &mut Layouts) -> Option<()> {
        read_formats(&mut self.rest, layouts)?;
        read_systems(&mut self.rest, layouts)
    }
}

/// Reads a list of descriptions.
pub(crate) fn read_formats(bytes: &mut Bytes<'_>, layouts: &mut Layouts) -> Option<()> {
    let count = bytes.u32()?;
    let read = (0..count.min(MAX_EVENTS)).try_for_each(|_| match bytes.block(8) {
        Some(format) => {
            layouts.add(format);
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    });
    read.is_continue().then_some(())
}

/// Reads groups of descriptions, each with a name.
pub(crate) fn read_systems(bytes: &mut Bytes<'_>, layouts: &mut Layouts) -> Option<()> {
    let count = bytes.u32()?;
    for _ in 0..count.min(MAX_EVENTS) {
        bytes.text()?;
        read_formats(bytes, layouts)?;
    }
    Some(())
}
