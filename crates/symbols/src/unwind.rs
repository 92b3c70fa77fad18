//! Unwinds stacks according to the tables in executables and libraries (`.eh_frame`), without
//! debug information or frame pointers.
//!
//! Compilers write these tables for exceptions, and strippers keep them. They say, for each
//! instruction, where the caller's registers are. Only the entries that a stack needs are read: the
//! table of a large program has tens of megabytes.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection,
};
use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::SymbolError;
use crate::error::check;

/// Number of registers on x86-64 that can be restored. The last one is the return address.
const REGISTERS: usize = 17;

/// DWARF numbers of the stack pointer and the return address on x86-64.
const STACK_POINTER: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// Registers that a function restores before it returns: `rbx`, `rbp` and `r12` to `r15`.
const PRESERVED: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// Maximum number of segments.
const MOST_SEGMENTS: u64 = 1 << 10;

/// Maximum number of functions in a table.
const MOST_FUNCTIONS: u64 = 1 << 24;

/// Maximum size of an entry in bytes, which describes one function.
const LONGEST_ENTRY: u64 = 64 << 10;

/// Maximum number of instructions whose rules are remembered.
const MOST_RULES: usize = 1 << 12;

/// Number of entries of the search table that are read at once.
const CHUNK: u64 = 128;

/// Encodings in the search table's header, which all linkers use: an address relative to its own
/// place, a number, and addresses relative to the header, all of 32 bits.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The values of a thread's registers, as far as they are known. The numbers are those of DWARF on
/// x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [Option<u64>; REGISTERS],
}

impl Registers {
    /// Creates registers from their values, in the order of their DWARF numbers. The last one is
    /// the instruction pointer.
    pub fn new(values: [Option<u64>; REGISTERS]) -> Self {
        Self { values }
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(STACK_POINTER)
    }

    /// Returns the instruction pointer. In a caller, it is the return address.
    pub fn instruction_pointer(&self) -> Option<u64> {
        self.get(RETURN_ADDRESS)
    }

    fn get(&self, register: u16) -> Option<u64> {
        self.values.get(usize::from(register)).copied().flatten()
    }

    fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(place) = self.values.get_mut(usize::from(register)) {
            *place = value;
        }
    }
}

/// The caller of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Its registers.
    Known(Box<Registers>),
    /// The function is the first one of its thread.
    None,
    /// Unknown, because the table has no entry for the function or the memory is unknown.
    Unknown,
}

/// How to find the caller's registers at one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// Register from which the end of the function's frame is computed.
    base: u16,
    offset: i64,
    /// Place of each of the [`PRESERVED`] registers, relative to the end of the frame. `None` if
    /// the register still has the caller's value.
    saved: [Option<i64>; PRESERVED.len()],
    /// Place of the return address. `None` if the function has no caller.
    returns: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// An executable or library that has a table.
#[derive(Debug)]
pub struct UnwindFile<R> {
    file: R,
    segments: Vec<Segment>,
    /// Address of the search table's header.
    header: u64,
    /// Offset in the file of the first entry of the search table.
    entries: u64,
    count: u64,
    known: HashMap<u64, Option<Rules>>,
}

impl<R: Read + Seek> UnwindFile<R> {
    /// Reads the headers of a file. Returns `None` if it has no table, or is not for x86-64.
    ///
    /// # Errors
    /// Returns an error if the file is not an ELF file, is damaged, or cannot be read.
    pub fn read(mut file: R) -> Result<Option<Self>, SymbolError> {
        let mut ident = [0; 6];
        file.rewind()?;
        file.read_exact(&mut ident)
            .map_err(|_| SymbolError::NotElf)?;
        if ident[..4] != *b"\x7fELF" {
            return Err(SymbolError::NotElf);
        }
        // 64-bit, little-endian.
        if ident[4..] != [2, 1] {
            return Ok(None);
        }
        let Some((segments, table)) = segments(&mut file)? else {
            return Ok(None);
        };
        let mut bytes = [0; 12];
        file.seek(SeekFrom::Start(table.offset))?;
        file.read_exact(&mut bytes)?;
        if bytes[..4] != ENCODINGS {
            return Ok(None);
        }
        let count = u64::from(u32::from_le_bytes([
            bytes[8], bytes[9], bytes[10], bytes[11],
        ]));
        check("unwinding table", count, MOST_FUNCTIONS)?;
        Ok(Some(Self {
            file,
            segments,
            header: table.address,
            entries: table.offset + bytes.len() as u64,
            count,
            known: HashMap::new(),
        }))
    }

    /// Returns the caller of the function that contains the instruction at `offset` in this file.
    /// For a function that has called another one, `offset` must be that of the call, not of the
    /// return address. `word` reads eight bytes of the thread's memory.
    pub fn caller(
        &mut self,
        offset: u64,
        registers: &Registers,
        word: impl Fn(u64) -> Option<u64>,
    ) -> Caller {
        let Some(address) = self.address(offset) else {
            return Caller::Unknown;
        };
        if self.known.len() >= MOST_RULES {
            self.known.clear();
        }
        let rules = if let Some(rules) = self.known.get(&address) {
            *rules
        } else {
            let rules = self.rules(address).unwrap_or_default();
            self.known.insert(address, rules);
            rules
        };
        match rules {
            Some(Rules { returns: None, .. }) => Caller::None,
            Some(rules) => rules
                .apply(registers, word)
                .map_or(Caller::Unknown, |caller| Caller::Known(Box::new(caller))),
            None => Caller::Unknown,
        }
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let mut segments = self.segments.iter();
        segments.find_map(|segment| {
            let within = offset.checked_sub(segment.offset)?;
            (within < segment.size).then(|| segment.address.checked_add(within))?
        })
    }

    /// Reads `length` bytes at an address.
    fn bytes(&mut self, address: u64, length: u64) -> Result<Vec<u8>, SymbolError> {
        let damaged = SymbolError::Damaged("unwinding table");
        let mut segments = self.segments.iter();
        let offset = segments.find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.size).then(|| segment.offset.checked_add(within))?
        });
        check("entry of the unwinding table", length, LONGEST_ENTRY)?;
        self.file.seek(SeekFrom::Start(offset.ok_or(damaged)?))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns entry `index` and the ones after it, as the addresses of functions and of their
    /// entries.
    fn search_entries(&mut self, index: u64, count: u64) -> Result<Vec<[u64; 2]>, SymbolError> {
        let mut bytes = vec![0; usize::try_from(count * 8).unwrap_or(0)];
        self.file
            .seek(SeekFrom::Start(self.entries.saturating_add(index * 8)))?;
        self.file.read_exact(&mut bytes)?;
        let relative = |bytes: &[u8]| {
            let number = bytes.try_into().map_or(0, i32::from_le_bytes);
            self.header.wrapping_add_signed(number.into())
        };
        let entries = bytes.chunks_exact(8);
        Ok(entries
            .map(|entry| [relative(&entry[..4]), relative(&entry[4..])])
            .collect())
    }

    /// Returns the address of the entry for the function that could contain `address`.
    fn entry(&mut self, address: u64) -> Result<Option<u64>, SymbolError> {
        // The function starts at or after the one at `low`, and before the one at `high`.
        let (mut low, mut high) = (0, self.count);
        while high - low > CHUNK {
            let middle = low + (high - low) / 2;
            let [begin, _] = self.search_entries(middle, 1)?[0];
            if begin <= address {
                low = middle;
            } else {
                high = middle;
            }
        }
        let entries = self.search_entries(low, high - low)?;
        let after = entries.partition_point(|&[begin, _]| begin <= address);
        Ok(entries[..after].last().map(|&[_, entry]| entry))
    }

    /// Returns the rules at an address, or `None` if they are missing or not supported.
    fn rules(&mut self, address: u64) -> Result<Option<Rules>, SymbolError> {
        let Some(function) = self.entry(address)? else {
            return Ok(None);
        };
        let Some(mut body) = self.whole_entry(function)? else {
            return Ok(None);
        };
        let distance = number(&body, 4);
        // The entry contains the distance to the common part of the entries of several functions.
        let common = function.wrapping_add(4).wrapping_sub(distance.into());
        let Some(mut section) = self.whole_entry(common)? else {
            return Ok(None);
        };
        // A section that consists of only these two parts.
        let at = section.len();
        let distance = u32::try_from(at + 4).unwrap_or(u32::MAX);
        body[4..8].copy_from_slice(&distance.to_le_bytes());
        section.extend(body);
        section.extend([0; 4]);
        let begin = function.wrapping_sub(at as u64);
        Ok(rules_in(&section, at, begin, address))
    }

    /// Reads an entry, which starts with its length. Returns `None` if it is the last one, or too
    /// long for 32 bits.
    fn whole_entry(&mut self, address: u64) -> Result<Option<Vec<u8>>, SymbolError> {
        let length = number(&self.bytes(address, 4)?, 0);
        if matches!(length, 0..8 | u32::MAX) {
            return Ok(None);
        }
        self.bytes(address, u64::from(length) + 4).map(Some)
    }
}

/// Returns the number at `at`, or 0 beyond the end.
fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Returns the segments of a file, and the place of its search table's header.
fn segments(file: &mut (impl Read + Seek)) -> Result<Option<(Vec<Segment>, Segment)>, SymbolError> {
    let cache = ReadCache::new(file);
    let damaged = |_| SymbolError::Damaged("program headers");
    let header = FileHeader64::<Endianness>::parse(&cache).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Ok(None);
    }
    let count = header.phnum(endian, &cache).map_err(damaged)?;
    check("number of segments", count as u64, MOST_SEGMENTS)?;
    let headers = header.program_headers(endian, &cache).map_err(damaged)?;
    let (mut loaded, mut table) = (Vec::new(), None);
    for header in headers {
        let (offset, size) = header.file_range(endian);
        let segment = Segment {
            offset,
            size,
            address: header.p_vaddr(endian),
        };
        match header.p_type(endian) {
            PT_LOAD => loaded.push(segment),
            PT_GNU_EH_FRAME => table = Some(segment),
            _ => {}
        }
    }
    Ok(table.map(|table| (loaded, table)))
}

/// Returns the rules at `address` according to the entry at offset `at` in a section that starts at
/// address `begin`.
fn rules_in(section: &[u8], at: usize, begin: u64, address: u64) -> Option<Rules> {
    let mut frames = EhFrame::new(section, LittleEndian);
    frames.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(begin);
    let entry = frames
        .fde_from_offset(&bases, EhFrameOffset(at), |frames, bases, offset| {
            frames.cie_from_offset(bases, offset)
        })
        .ok()?;
    let is_normal =
        !entry.is_signal_trampoline() && entry.cie().return_address_register().0 == RETURN_ADDRESS;
    if !is_normal || !entry.contains(address) {
        return None;
    }
    let mut context = UnwindContext::new();
    let row = entry
        .unwind_info_for_address(&frames, &bases, &mut context, address)
        .ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let mut rules = Rules {
        base: register.0,
        offset,
        saved: [None; PRESERVED.len()],
        returns: None,
    };
    for (saved, number) in rules.saved.iter_mut().zip(PRESERVED) {
        *saved = match row.register(gimli::Register(number)) {
            RegisterRule::Offset(offset) => Some(offset),
            // A preserved register without a rule was not changed.
            RegisterRule::Undefined | RegisterRule::SameValue => None,
            _ => return None,
        };
    }
    rules.returns = match row.register(gimli::Register(RETURN_ADDRESS)) {
        RegisterRule::Offset(offset) => Some(offset),
        RegisterRule::Undefined => None,
        _ => return None,
    };
    Some(rules)
}

impl Rules {
    /// Returns the caller's registers, or `None` if they depend on unknown memory.
    fn apply(&self, registers: &Registers, word: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
        let frame = registers.get(self.base)?.wrapping_add_signed(self.offset);
        // The stack grows downwards.
        registers.stack_pointer().filter(|&before| before < frame)?;
        let mut caller = Registers::default();
        for (saved, number) in self.saved.iter().zip(PRESERVED) {
            let value = match saved {
                Some(offset) => word(frame.wrapping_add_signed(*offset)),
                None => registers.get(number),
            };
            caller.set(number, value);
        }
        let returns = word(frame.wrapping_add_signed(self.returns?))?;
        caller.set(RETURN_ADDRESS, Some(returns));
        caller.set(STACK_POINTER, Some(frame));
        Some(caller)
    }
}

#[cfg(test)]
mod tests;
