//! Finds the parts of a trace.dat file: descriptions, options and buffers.

use std::fs::File;
use std::io;
use std::path::Path;

use super::pages::{PageLayout, read_at, unpack};
use crate::bytes::Bytes;
use crate::convert::Converter;
use crate::error::ImportError;
use crate::event::Facts;
use crate::kind::TraceKind;
use crate::layout::{Layouts, TracingData, read_formats, read_systems};

/// Maximum size of all parts except the events, in bytes.
const MAX_DESCRIPTIONS: usize = 64 << 20;
/// Maximum number of lists of options in a file of version 7.
const MAX_LISTS: usize = 1_000;

/// Ids of options, which are also the ids of the sections that they point to.
mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const CPU_COUNT: u16 = 8;
    pub(super) const TSC_TO_NANOS: u16 = 14;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_EVENTS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const SYMBOLS: u16 = 19;
    pub(super) const COMMAND_LINES: u16 = 21;
}

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    /// This part of the file is damaged.
    Damaged(&'static str),
    /// The file contains the output of a latency tracer instead of events.
    Latency,
    NoData,
    Version(u32),
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> ImportError {
        const KIND: TraceKind = TraceKind::TraceDat;
        let why = match self {
            Self::Io(error) => return ImportError::io(path, KIND, &error),
            Self::Damaged(part) => format!("{part} is damaged: copy the file again"),
            Self::Latency => "it contains the text of a latency tracer, not events: record with \
                              `trace-cmd record -e sched -e irq`"
                .to_owned(),
            Self::NoData => "it contains no events: record again".to_owned(),
            Self::Version(version) => {
                format!("it has version {version}, but ticktax reads 6 and 7: update ticktax")
            }
        };
        ImportError::read(path, KIND, why)
    }
}

/// A CPU's data in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuPart {
    pub(super) cpu: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// A ring buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    pub(super) clock: String,
    pub(super) is_compressed: bool,
    pub(super) cpus: Vec<CpuPart>,
}

impl Buffer {
    fn has_data(&self) -> bool {
        self.cpus.iter().any(|part| part.size > 0)
    }
}

/// Conversion from cycles to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    multiplier: u32,
    shift: u32,
    offset: u64,
}

impl Scale {
    pub(super) fn nanos(self, cycles: u64) -> u64 {
        let cycles = u128::from(cycles.saturating_sub(self.offset));
        let nanos = (cycles * u128::from(self.multiplier)) >> self.shift.min(127);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// Everything in a file except its events.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) layouts: Layouts,
    pub(super) facts: Facts,
    pub(super) scale: Option<Scale>,
    buffers: Vec<Buffer>,
    clock: String,
    page: PageLayout,
}

impl Parts {
    pub(super) fn read(file: &File, converter: &mut Converter) -> Result<Self, Fault> {
        let head = read_at(file, 0, MAX_DESCRIPTIONS)?;
        let damaged = || Fault::Damaged("its header");
        let mut data = TracingData::begin(&head).ok_or_else(damaged)?;
        let mut this = Self {
            layouts: Layouts::new(data.is_big_endian),
            facts: Facts::default(),
            scale: None,
            buffers: Vec::new(),
            clock: "local".to_owned(),
            page: PageLayout {
                size: data.page_size,
                commit: data.long_size,
                is_big_endian: data.is_big_endian,
            },
        };
        match data.version {
            6 => this.version_6(&mut data, file, converter)?,
            7 => this.version_7(&mut data, file, converter)?,
            version => return Err(Fault::Version(version)),
        }
        Ok(this)
    }

    /// Returns the main buffer or, if it is empty, the first buffer with data.
    pub(super) fn buffer(&self) -> Option<Buffer> {
        let mut buffers = self.buffers.iter();
        let mut buffer = buffers.find(|buffer| buffer.has_data())?.clone();
        if buffer.clock.is_empty() {
            buffer.clock.clone_from(&self.clock);
        }
        Some(buffer)
    }

    pub(super) fn page_layout(&self) -> PageLayout {
        self.page
    }

    fn version_6(
        &mut self,
        data: &mut TracingData<'_>,
        file: &File,
        converter: &mut Converter,
    ) -> Result<(), Fault> {
        let damaged = || Fault::Damaged("its list of events");
        data.read(&mut self.layouts).ok_or_else(damaged)?;
        self.commit_size(data.commit_size);
        let bytes = &mut data.rest;
        name_threads(bytes.block(8).ok_or_else(damaged)?, converter);
        let cpus = bytes.u32().ok_or_else(damaged)?;
        self.facts.cpus = Some(cpus);
        let mut instances = Vec::new();
        if bytes.skip(b"options  \0").is_some() {
            self.options(bytes, &mut instances)
                .ok_or(Fault::Damaged("its list of options"))?;
        }
        let top = cpu_parts(bytes, cpus)?;
        self.buffers.push(top);
        for offset in instances {
            // The header of each buffer is much smaller than this.
            let head = read_at(file, offset, 1 << 20)?;
            let mut bytes = Bytes::new(&head, self.page.is_big_endian);
            self.buffers.extend(cpu_parts(&mut bytes, cpus));
        }
        Ok(())
    }

    /// Reads options of version 6, and collects the places of further buffers.
    fn options(&mut self, bytes: &mut Bytes<'_>, instances: &mut Vec<u64>) -> Option<()> {
        loop {
            let id = bytes.u16()?;
            if id == option::DONE {
                return Some(());
            }
            let contents = bytes.block(4)?;
            if id == option::BUFFER {
                let mut contents = Bytes::new(contents, self.page.is_big_endian);
                instances.extend(contents.u64());
            } else {
                self.option(id, contents);
            }
        }
    }

    /// Reads an option that has the same contents in both versions.
    fn option(&mut self, id: u16, contents: &[u8]) {
        let text = || {
            let end = memchr::memchr(0, contents).unwrap_or(contents.len());
            String::from_utf8_lossy(&contents[..end]).into_owned()
        };
        let mut bytes = Bytes::new(contents, self.page.is_big_endian);
        match id {
            option::CLOCK => {
                let text = text();
                let current = text
                    .split_once('[')
                    .and_then(|(_, rest)| rest.split_once(']'));
                current
                    .map_or(&*text, |(clock, _)| clock)
                    .trim()
                    .clone_into(&mut self.clock);
            }
            option::UNAME => {
                let text = text();
                let words: Vec<&str> = text.split_ascii_whitespace().collect();
                let word = |place: usize| words.get(place).copied().unwrap_or_default().to_owned();
                self.facts.host = word(1);
                self.facts.kernel = word(2);
                self.facts.arch = word(words.len().saturating_sub(1));
            }
            option::CPU_COUNT => self.facts.cpus = bytes.u32(),
            option::TSC_TO_NANOS => {
                self.scale = bytes.u32().zip(bytes.u32()).zip(bytes.u64()).map(
                    |((multiplier, shift), offset)| Scale {
                        multiplier,
                        shift,
                        offset,
                    },
                );
            }
            _ => {}
        }
    }

    fn version_7(
        &mut self,
        data: &mut TracingData<'_>,
        file: &File,
        converter: &mut Converter,
    ) -> Result<(), Fault> {
        let damaged = || Fault::Damaged("its header");
        // Name and version of the compression algorithm.
        data.rest.text().ok_or_else(damaged)?;
        data.rest.text().ok_or_else(damaged)?;
        let mut place = data.rest.u64().ok_or_else(damaged)?;
        for _ in 0..MAX_LISTS {
            if place == 0 {
                return Ok(());
            }
            let section = self.section(file, place)?;
            let mut bytes = Bytes::new(&section, self.page.is_big_endian);
            place = self
                .options_7(&mut bytes, file, converter)?
                .ok_or(Fault::Damaged("its list of options"))?;
        }
        Err(Fault::Damaged("its list of options"))
    }

    /// Reads a list of options, and the sections that they point to. Returns the place of the next
    /// list.
    fn options_7(
        &mut self,
        bytes: &mut Bytes<'_>,
        file: &File,
        converter: &mut Converter,
    ) -> Result<Option<u64>, Fault> {
        while let Some((id, contents)) = bytes.u16().zip(bytes.block(4)) {
            let mut contents_at = Bytes::new(contents, self.page.is_big_endian);
            match id {
                option::DONE => return Ok(contents_at.u64()),
                option::BUFFER => {
                    let buffer = self.buffer_7(&mut contents_at, file)?;
                    self.buffers.extend(buffer);
                }
                option::HEADER_INFO
                | option::FTRACE_EVENTS
                | option::EVENT_FORMATS
                | option::SYMBOLS
                | option::COMMAND_LINES => {
                    let place = contents_at.u64().ok_or(Fault::Damaged("an option"))?;
                    let section = self.section(file, place)?;
                    self.describe(id, &section, converter)
                        .ok_or(Fault::Damaged("its list of events"))?;
                }
                _ => self.option(id, contents),
            }
        }
        Ok(None)
    }

    fn describe(&mut self, id: u16, section: &[u8], converter: &mut Converter) -> Option<()> {
        let mut bytes = Bytes::new(section, self.page.is_big_endian);
        match id {
            option::HEADER_INFO => {
                let commit = TracingData::headers(&mut bytes)?;
                self.commit_size(commit);
            }
            option::FTRACE_EVENTS => read_formats(&mut bytes, &mut self.layouts)?,
            option::EVENT_FORMATS => read_systems(&mut bytes, &mut self.layouts)?,
            option::SYMBOLS => self.layouts.add_symbols(bytes.block(4)?),
            _ => name_threads(bytes.block(8)?, converter),
        }
        Some(())
    }

    fn buffer_7(&self, option: &mut Bytes<'_>, file: &File) -> Result<Option<Buffer>, Fault> {
        let damaged = || Fault::Damaged("its list of buffers");
        let place = option.u64().ok_or_else(damaged)?;
        option.text().ok_or_else(damaged)?;
        let clock = String::from_utf8_lossy(option.text().ok_or_else(damaged)?).into_owned();
        // Newer versions of trace-cmd add the size of a page.
        if option.len() % 20 == 8 {
            option.u32();
        }
        let count = option.u32().ok_or_else(damaged)?;
        let mut cpus = Vec::new();
        for _ in 0..count {
            let (cpu, offset) = option.u32().zip(option.u64()).ok_or_else(damaged)?;
            let size = option.u64().ok_or_else(damaged)?;
            cpus.push(CpuPart { cpu, offset, size });
        }
        let header = read_at(file, place, SECTION_HEADER)?;
        let mut header = Bytes::new(&header, self.page.is_big_endian);
        let flags = header.u16().and(header.u16()).ok_or_else(damaged)?;
        Ok(Some(Buffer {
            clock,
            is_compressed: flags & COMPRESSED != 0,
            cpus,
        }))
    }

    /// Reads a section of version 7, without its header.
    fn section(&self, file: &File, place: u64) -> Result<Vec<u8>, Fault> {
        let damaged = || Fault::Damaged("a section");
        let header = read_at(file, place, SECTION_HEADER)?;
        let mut header = Bytes::new(&header, self.page.is_big_endian);
        let flags = header.u16().and(header.u16()).ok_or_else(damaged)?;
        let size = header.u32().and(header.u64()).ok_or_else(damaged)?;
        let size = usize::try_from(size)
            .ok()
            .filter(|&size| size <= MAX_DESCRIPTIONS);
        let bytes = read_at(
            file,
            place + SECTION_HEADER as u64,
            size.ok_or_else(damaged)?,
        )?;
        if flags & COMPRESSED == 0 {
            return Ok(bytes);
        }
        let mut packed = Bytes::new(&bytes, self.page.is_big_endian);
        let (length, unpacked) = packed.u32().zip(packed.u32()).ok_or_else(damaged)?;
        let unpacked = Some(unpacked as usize).filter(|&size| size <= MAX_DESCRIPTIONS);
        let data = packed.take(length as usize).ok_or_else(damaged)?;
        unpack(data, unpacked.ok_or_else(damaged)?)
    }

    fn commit_size(&mut self, size: usize) {
        if matches!(size, 4 | 8) {
            self.page.commit = size;
        }
    }
}

/// Size of a section's header in bytes: its id, flags, description and size.
const SECTION_HEADER: usize = 16;
/// Flag of a compressed section.
const COMPRESSED: u16 = 1;

/// Reads the places of the CPUs' data in version 6.
fn cpu_parts(bytes: &mut Bytes<'_>, cpus: u32) -> Result<Buffer, Fault> {
    if bytes.skip(b"latency  \0").is_some() {
        return Err(Fault::Latency);
    }
    let damaged = || Fault::Damaged("its list of CPUs");
    bytes.skip(b"flyrecord\0").ok_or_else(damaged)?;
    let mut parts = Vec::new();
    for cpu in 0..cpus {
        let (offset, size) = bytes.u64().zip(bytes.u64()).ok_or_else(damaged)?;
        parts.push(CpuPart { cpu, offset, size });
    }
    Ok(Buffer {
        cpus: parts,
        ..Buffer::default()
    })
}

/// Reads the names of threads, each on a line with its id.
fn name_threads(lines: &[u8], converter: &mut Converter) {
    for line in lines.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        if let Some((tid, name)) = line.trim_end_matches('\0').trim_start().split_once(' ')
            && let Ok(tid) = tid.parse()
            && let Some(name) = crate::words::known_name(name)
        {
            let name = converter.names.intern(name);
            converter.threads.name(tid, name);
        }
    }
}
