//! The parts of an ELF file that lead from an offset in the file to its symbols.

use std::fmt;
use std::io::{Read, Seek};

use object::Endianness;
use object::elf::{
    EM_ARM, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, SHT_DYNSYM, SHT_NOBITS,
    SHT_PROGBITS, SHT_SYMTAB,
};
use object::read::ReadCache;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable};

use crate::SymbolError;
use crate::error::check;

/// Maximum number of sections and of segments. A file has thousands of sections if each function
/// has its own.
const MOST_HEADERS: u64 = 1 << 17;

/// Maximum size of a part that can contain the build ID, in bytes.
const LONGEST_NOTES: u64 = 64 << 10;

/// Maximum length of a build ID, in bytes. The usual length is 20.
const LONGEST_BUILD_ID: usize = 64;

/// Identifies a build of an executable or library. A file with debug information has the same
/// build ID as the file that it was split from.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    fn from_note(bytes: &[u8]) -> Option<Self> {
        (2..=LONGEST_BUILD_ID)
            .contains(&bytes.len())
            .then(|| Self(bytes.to_owned()))
    }

    /// Returns the path of the file with debug information, relative to `/usr/lib/debug`.
    pub fn debug_path(&self) -> String {
        let digits = self.to_string();
        format!(".build-id/{}/{}.debug", &digits[..2], &digits[2..])
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// An executable part of the file, and its place in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    offset: u64,
    file_size: u64,
    address: u64,
    end: u64,
}

impl Segment {
    fn address_of(&self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.file_size).then(|| self.address + within)
    }

    /// Returns whether all addresses from `begin` up to `end` are in the segment.
    pub(crate) fn contains(&self, begin: u64, end: u64) -> bool {
        (self.address..self.end).contains(&begin) && end <= self.end
    }
}

/// Where a symbol table and its names are in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) names: u64,
    pub(crate) names_size: u64,
}

/// Headers of a file, which are read before its symbols.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) is_64_bit: bool,
    pub(crate) endian: Endianness,
    /// Bits of a symbol's value that are its address. On 32-bit Arm, the lowest bit selects an
    /// instruction set.
    pub(crate) address_bits: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) build_id: Option<BuildId>,
    /// All symbols, if the file was not stripped.
    pub(crate) all: Option<Table>,
    /// Symbols that other files can use.
    pub(crate) exported: Option<Table>,
    /// Offset and size of a compressed file with the other symbols (`.gnu_debugdata`).
    pub(crate) compressed: Option<(u64, u64)>,
}

impl Layout {
    pub(crate) fn read(file: &mut (impl Read + Seek)) -> Result<Self, SymbolError> {
        let mut ident = [0; 5];
        file.rewind()?;
        // Scripts and data can be shorter than an ELF header.
        file.read_exact(&mut ident)
            .map_err(|_| SymbolError::NotElf)?;
        let cache = ReadCache::new(file);
        match ident {
            [0x7f, b'E', b'L', b'F', 1] => parse::<FileHeader32<Endianness>, _>(&cache),
            [0x7f, b'E', b'L', b'F', 2] => parse::<FileHeader64<Endianness>, _>(&cache),
            _ => Err(SymbolError::NotElf),
        }
    }

    /// Returns the address at which the byte at `offset` is linked, and its segment. Returns `None`
    /// if the byte is not executable, or is at two places.
    pub(crate) fn address(&self, offset: u64) -> Option<(u64, &Segment)> {
        let places = self.segments.iter();
        let mut places = places.filter_map(|segment| Some((segment.address_of(offset)?, segment)));
        let (address, segment) = places.next()?;
        places
            .all(|(other, _)| other == address)
            .then_some((address, segment))
    }
}

fn damaged(part: &'static str) -> impl Fn(object::read::Error) -> SymbolError {
    move |_| SymbolError::Damaged(part)
}

fn parse<Elf, R>(data: &ReadCache<R>) -> Result<Layout, SymbolError>
where
    Elf: FileHeader<Endian = Endianness>,
    R: Read + Seek,
{
    let header = Elf::parse(data).map_err(damaged("header"))?;
    let endian = header.endian().map_err(damaged("header"))?;
    let is_arm = header.e_machine(endian) == EM_ARM;
    let segments = header.phnum(endian, data).map_err(damaged("header"))?;
    check("number of segments", segments as u64, MOST_HEADERS)?;
    let segments = header.program_headers(endian, data);
    let segments = segments.map_err(damaged("program headers"))?;
    let sections = header.shnum(endian, data).map_err(damaged("header"))?;
    check("number of sections", sections as u64, MOST_HEADERS)?;
    let sections = header.sections(endian, data);
    let sections = sections.map_err(damaged("section headers"))?;
    let mut build_id = None;
    for section in sections.iter() {
        if section.sh_size(endian).into() <= LONGEST_NOTES
            && let Ok(Some(notes)) = section.notes(endian, data)
        {
            build_id = build_id.or_else(|| build_id_in::<Elf>(endian, notes));
        }
    }
    // A file without section headers still has its notes in a segment.
    for segment in segments {
        if build_id.is_none()
            && segment.p_filesz(endian).into() <= LONGEST_NOTES
            && let Ok(Some(notes)) = segment.notes(endian, data)
        {
            build_id = build_id_in::<Elf>(endian, notes);
        }
    }
    Ok(Layout {
        is_64_bit: header.is_type_64(),
        endian,
        address_bits: if is_arm { !1 } else { !0 },
        segments: segments
            .iter()
            .filter_map(|segment| executable(segment, endian))
            .collect(),
        build_id,
        all: table(&sections, endian, SHT_SYMTAB),
        exported: table(&sections, endian, SHT_DYNSYM),
        compressed: sections
            .section_by_name(endian, b".gnu_debugdata")
            .filter(|(_, section)| section.sh_type(endian) == SHT_PROGBITS)
            .map(|(_, section)| {
                (
                    section.sh_offset(endian).into(),
                    section.sh_size(endian).into(),
                )
            }),
    })
}

fn build_id_in<Elf: FileHeader>(
    endian: Elf::Endian,
    mut notes: NoteIterator<'_, Elf>,
) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
            return BuildId::from_note(note.desc());
        }
    }
    None
}

fn executable<Header>(segment: &Header, endian: Endianness) -> Option<Segment>
where
    Header: ProgramHeader<Endian = Endianness>,
{
    let is_code = segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0;
    let (offset, file_size) = segment.file_range(endian);
    let address: u64 = segment.p_vaddr(endian).into();
    let end = address.checked_add(segment.p_memsz(endian).into())?;
    let fits = offset.checked_add(file_size).is_some() && address.checked_add(file_size)? <= end;
    (is_code && fits).then_some(Segment {
        offset,
        file_size,
        address,
        end,
    })
}

/// Returns the symbol table of this kind. In a file with debug information, the table of exported
/// symbols can be empty: it has a size but no contents.
fn table<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, &'data ReadCache<R>>,
    endian: Endianness,
    kind: u32,
) -> Option<Table>
where
    Elf: FileHeader<Endian = Endianness>,
    R: Read + Seek,
{
    let symbols = sections
        .iter()
        .find(|section| section.sh_type(endian) == kind)?;
    let names = sections.section(symbols.link(endian)).ok()?;
    if names.sh_type(endian) == SHT_NOBITS {
        return None;
    }
    Some(Table {
        offset: symbols.sh_offset(endian).into(),
        size: symbols.sh_size(endian).into(),
        names: names.sh_offset(endian).into(),
        names_size: names.sh_size(endian).into(),
    })
}
