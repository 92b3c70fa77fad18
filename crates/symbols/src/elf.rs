//! Executables and libraries.

use std::io::{Cursor, Read, Seek, SeekFrom};

use object::Endianness;
use object::elf::{STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, Sym32, Sym64};
use object::pod::{Pod, slice_from_all_bytes};
use object::read::elf::Sym;

use crate::compressed::{MOST_BYTES, decompress};
use crate::demangle::readable;
use crate::error::check;
use crate::layout::{BuildId, Layout, Segment, Table};
use crate::places::{NamedPlaces, combined};
use crate::{Pause, SymbolError};

/// Maximum number of symbols in a table, which then takes 192 MiB. The largest known programs have
/// about two million.
const MOST_SYMBOLS: u64 = 1 << 23;

/// Maximum length of a symbol, in bytes. Longer ones are ignored.
const LONGEST_SYMBOL: u64 = 4 << 10;

/// Maximum number of times that symbols may cover the places. A table needs more only if all of
/// its symbols overlap.
const MOST_COVERED: u64 = 1 << 24;

/// Number of symbols read at once. Each takes 24 bytes, so that a chunk takes about 20 µs.
const CHUNK: usize = 1 << 10;

/// Symbol table in which names were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// All symbols (`.symtab`).
    All,
    /// Only the symbols that other files can use (`.dynsym`).
    Exported,
}

/// An opened executable or library.
#[derive(Debug)]
pub struct ElfFile<R> {
    file: R,
    layout: Layout,
}

/// A place in a file, and the best symbol found for it.
struct Place<'a> {
    offset: u64,
    address: u64,
    segment: &'a Segment,
    symbol: Option<Candidate>,
}

#[derive(Clone, Copy)]
struct Candidate {
    begin: u64,
    end: u64,
    /// Order of preference between symbols of the same range. Exported names are better known.
    rank: u8,
    name: u32,
}

impl Candidate {
    /// Returns whether this symbol is a better choice than `other`: it starts later, so that it is
    /// a part of the other; it is shorter; or its name is better known.
    fn is_better(&self, other: &Self) -> bool {
        let key = |symbol: &Self| (!symbol.begin, symbol.end, symbol.rank);
        key(self) < key(other)
    }
}

impl<R: Read + Seek> ElfFile<R> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// Returns an error if it is not an ELF file, is damaged, or cannot be read.
    pub fn read(mut file: R) -> Result<Self, SymbolError> {
        let layout = Layout::read(&mut file)?;
        Ok(Self { file, layout })
    }

    /// Returns the build ID, if the linker wrote one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.layout.build_id.as_ref()
    }

    /// Returns whether the file has this symbol table.
    pub fn has(&self, kind: TableKind) -> bool {
        self.table(kind).is_some()
    }

    /// Returns the file with symbols that is compressed inside this one, if it has one.
    ///
    /// # Errors
    /// Returns an error if it is damaged, too large, or cannot be read.
    pub fn embedded(
        &mut self,
        pause: Pause<'_>,
    ) -> Result<Option<ElfFile<Cursor<Vec<u8>>>>, SymbolError> {
        let Some((offset, size)) = self.layout.compressed else {
            return Ok(None);
        };
        let bytes = decompress(&mut self.file, offset, size, MOST_BYTES, pause)?;
        ElfFile::read(bytes).map(Some)
    }

    fn table(&self, kind: TableKind) -> Option<Table> {
        match kind {
            TableKind::All => self.layout.all,
            TableKind::Exported => self.layout.exported,
        }
    }

    /// Finds the functions at `offsets` in this file.
    ///
    /// # Errors
    /// Returns an error if the symbol table is damaged or cannot be read.
    pub fn functions(
        &mut self,
        kind: TableKind,
        offsets: &[u64],
        pause: Pause<'_>,
    ) -> Result<Vec<NamedPlaces>, SymbolError> {
        let (places, table) = (places(&self.layout, offsets), self.table(kind));
        search(&mut self.file, &self.layout, table, places, pause)
    }

    /// Finds the functions at `offsets` in this file, according to the symbols in another. `debug`
    /// must have been split from this file, so that both have the same addresses.
    ///
    /// # Errors
    /// Returns an error if the symbol table is damaged or cannot be read.
    pub fn functions_by<D: Read + Seek>(
        &self,
        debug: &mut ElfFile<D>,
        offsets: &[u64],
        pause: Pause<'_>,
    ) -> Result<Vec<NamedPlaces>, SymbolError> {
        let (places, table) = (places(&self.layout, offsets), debug.layout.all);
        search(&mut debug.file, &debug.layout, table, places, pause)
    }
}

/// Returns the executable places, by address.
fn places<'a>(layout: &'a Layout, offsets: &[u64]) -> Vec<Place<'a>> {
    let place = |&offset: &u64| {
        let (address, segment) = layout.address(offset)?;
        Some(Place {
            offset,
            address,
            segment,
            symbol: None,
        })
    };
    let mut places: Vec<Place<'a>> = offsets.iter().filter_map(place).collect();
    places.sort_unstable_by_key(|place| (place.address, place.offset));
    places.dedup_by_key(|place| place.offset);
    places
}

fn search(
    file: &mut (impl Read + Seek),
    layout: &Layout,
    table: Option<Table>,
    mut places: Vec<Place<'_>>,
    pause: Pause<'_>,
) -> Result<Vec<NamedPlaces>, SymbolError> {
    let Some(table) = table.filter(|_| !places.is_empty()) else {
        return Ok(Vec::new());
    };
    if layout.is_64_bit {
        cover::<Sym64<Endianness>>(file, layout, table, &mut places, pause)?;
    } else {
        cover::<Sym32<Endianness>>(file, layout, table, &mut places, pause)?;
    }
    // A function's name is read once for all places that follow each other.
    let mut last: Option<(u32, Option<String>)> = None;
    let mut named = Vec::with_capacity(places.len());
    for place in &places {
        let Some(symbol) = place.symbol else {
            named.push((place.offset, None));
            continue;
        };
        let name = match &last {
            Some((offset, name)) if *offset == symbol.name => name.clone(),
            _ => {
                pause();
                name(file, table, symbol.name)?
            }
        };
        last = Some((symbol.name, name.clone()));
        named.push((place.offset, name));
    }
    named.sort_unstable_by_key(|&(offset, _)| offset);
    Ok(combined(named.into_iter()))
}

/// Finds the best symbol for each place.
fn cover<S: Sym<Endian = Endianness> + Pod>(
    file: &mut (impl Read + Seek),
    layout: &Layout,
    table: Table,
    places: &mut [Place<'_>],
    pause: Pause<'_>,
) -> Result<(), SymbolError> {
    let size = size_of::<S>();
    let count = table.size / size as u64;
    check("number of symbols", count, MOST_SYMBOLS)?;
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    let mut bytes = vec![0; CHUNK.min(left) * size];
    let mut covered = 0;
    file.seek(SeekFrom::Start(table.offset))?;
    while left > 0 {
        let chunk = &mut bytes[..CHUNK.min(left) * size];
        file.read_exact(chunk)?;
        let symbols = slice_from_all_bytes::<S>(chunk);
        let symbols = symbols.map_err(|()| SymbolError::Damaged("symbol table"))?;
        for symbol in symbols {
            if let Some(symbol) = candidate(symbol, layout) {
                covered += offer(symbol, places);
            }
        }
        check("overlap of symbols", covered, MOST_COVERED)?;
        left -= symbols.len();
        pause();
    }
    Ok(())
}

/// Returns the range of a function that is defined here. A symbol of size 0 covers nothing:
/// functions in assembly often have no size, and the code up to the next symbol can belong to a
/// function whose symbol was removed.
fn candidate<S: Sym<Endian = Endianness>>(symbol: &S, layout: &Layout) -> Option<Candidate> {
    let endian = layout.endian;
    let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
    if !is_function || symbol.is_undefined(endian) {
        return None;
    }
    let begin = symbol.st_value(endian).into() & layout.address_bits;
    let size: u64 = symbol.st_size(endian).into();
    let end = begin.checked_add(size).filter(|_| size > 0)?;
    Some(Candidate {
        begin,
        end,
        rank: match symbol.st_bind() {
            STB_GLOBAL => 0,
            STB_WEAK => 1,
            _ => 2,
        },
        name: symbol.st_name(endian),
    })
}

/// Gives the symbol to all places in it that have no better one. Returns the number of places in
/// it.
fn offer(symbol: Candidate, places: &mut [Place<'_>]) -> u64 {
    let first = places.partition_point(|place| place.address < symbol.begin);
    let mut covered = 0;
    for place in &mut places[first..] {
        if place.address >= symbol.end {
            break;
        }
        covered += 1;
        // A symbol that continues past its segment is wrong.
        if place.segment.contains(symbol.begin, symbol.end)
            && place.symbol.is_none_or(|best| symbol.is_better(&best))
        {
            place.symbol = Some(symbol);
        }
    }
    covered
}

/// Reads the name at this offset in the table's names. Returns `None` if it has no end or is too
/// long to be a name.
fn name(
    file: &mut (impl Read + Seek),
    table: Table,
    offset: u32,
) -> Result<Option<String>, SymbolError> {
    let longest = table.names_size.saturating_sub(offset.into());
    let longest = longest.min(LONGEST_SYMBOL);
    let Some(begin) = table.names.checked_add(offset.into()) else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.by_ref().take(longest).read_to_end(&mut bytes)?;
    let length = memchr::memchr(0, &bytes).filter(|&length| length > 0);
    let name = length.map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned());
    Ok(name.map(|name| readable(&name)))
}
