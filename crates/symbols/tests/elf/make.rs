//! Writes ELF files for tests.

use std::io::Write;

use lzma_rust2::{XzOptions, XzWriter};
use object::Endianness;
use object::elf::{
    EM_X86_64, ET_DYN, NT_GNU_BUILD_ID, PF_R, PF_X, PT_LOAD, SHT_NOTE, SHT_PROGBITS, STB_GLOBAL,
    STB_LOCAL, STT_FUNC,
};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SectionIndex, Sym, Writer};

/// A symbol that is defined in a section, or undefined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: &'static str,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: u8,
    pub(crate) binding: u8,
    pub(crate) is_defined: bool,
}

impl Symbol {
    pub(crate) fn new(name: &'static str, address: u64, size: u64) -> Self {
        Self {
            name,
            address,
            size,
            kind: STT_FUNC,
            binding: STB_GLOBAL,
            is_defined: true,
        }
    }

    pub(crate) fn local(name: &'static str, address: u64, size: u64) -> Self {
        Self {
            binding: STB_LOCAL,
            ..Self::new(name, address, size)
        }
    }
}

/// A part of the file that is mapped to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
}

impl Segment {
    /// Executable code.
    pub(crate) fn code(offset: u64, address: u64, size: u64) -> Self {
        Self {
            offset,
            address,
            size,
            flags: PF_R | PF_X,
        }
    }
}

/// Contents of a file. Its symbols are written as given, even if they are wrong.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) is_64_bit: bool,
    pub(crate) endian: Endianness,
    pub(crate) machine: u16,
    pub(crate) segments: Vec<Segment>,
    pub(crate) build_id: Option<Vec<u8>>,
    /// Symbols in `.symtab`; `None` if the file was stripped.
    pub(crate) all: Option<Vec<Symbol>>,
    /// Symbols in `.dynsym`.
    pub(crate) exported: Option<Vec<Symbol>>,
    /// Contents of `.gnu_debugdata`.
    pub(crate) embedded: Option<Vec<u8>>,
}

impl Default for Contents {
    /// 16 KiB of code, whose addresses are 0x400000 above their offsets.
    fn default() -> Self {
        Self {
            is_64_bit: true,
            endian: Endianness::Little,
            machine: EM_X86_64,
            segments: vec![Segment::code(0x1000, 0x40_1000, 0x4000)],
            build_id: Some(vec![0xab; 20]),
            all: None,
            exported: None,
            embedded: None,
        }
    }
}

impl Contents {
    /// Returns a file with these symbols.
    pub(crate) fn with(symbols: &[Symbol]) -> Self {
        Self {
            all: Some(symbols.to_vec()),
            ..Self::default()
        }
    }

    /// Adds these symbols in compressed form.
    pub(crate) fn with_embedded(mut self, symbols: &[Symbol]) -> Self {
        let options = XzOptions::with_preset(0);
        let mut writer = XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(&Self::with(symbols).bytes()).unwrap();
        self.embedded = Some(writer.finish().unwrap());
        self
    }

    fn note(&self) -> Vec<u8> {
        let Some(id) = &self.build_id else {
            return Vec::new();
        };
        let word = |number: u32| match self.endian {
            Endianness::Little => number.to_le_bytes(),
            Endianness::Big => number.to_be_bytes(),
        };
        let length = u32::try_from(id.len()).unwrap();
        let head = [word(4), word(length), word(NT_GNU_BUILD_ID), *b"GNU\0"];
        [head.concat(), id.clone()].concat()
    }

    /// Writes the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(self.endian, self.is_64_bit, &mut bytes);
        let note = self.note();
        writer.reserve_file_header();
        writer.reserve_program_headers(u32::try_from(self.segments.len()).unwrap());
        let note_at = writer.reserve(note.len(), 4);
        let embedded = self.embedded.as_deref();
        let embedded_at = writer.reserve(embedded.unwrap_or_default().len(), 1);
        writer.reserve_null_section_index();
        let note_name = writer.add_section_name(b".note.gnu.build-id");
        writer.reserve_section_index();
        let embedded_name = embedded.map(|_| {
            writer.reserve_section_index();
            writer.add_section_name(b".gnu_debugdata")
        });
        let (all, exported) = self.reserve_symbols(&mut writer);
        writer.reserve_shstrtab_section_index();
        writer.reserve_shstrtab();
        writer.reserve_section_headers();

        self.write_headers(&mut writer);
        writer.write_align(4);
        writer.write(&note);
        writer.write(embedded.unwrap_or_default());
        if self.all.is_some() {
            writer.write_null_symbol();
            for symbol in &all {
                writer.write_symbol(symbol);
            }
            writer.write_strtab();
        }
        if self.exported.is_some() {
            writer.write_null_dynamic_symbol();
            for symbol in &exported {
                writer.write_dynamic_symbol(symbol);
            }
            writer.write_dynstr();
        }
        writer.write_shstrtab();
        writer.write_null_section_header();
        let section = SectionHeader {
            name: Some(note_name),
            sh_type: SHT_NOTE,
            sh_flags: 0,
            sh_addr: 0,
            sh_offset: note_at as u64,
            sh_size: note.len() as u64,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 4,
            sh_entsize: 0,
        };
        writer.write_section_header(&section);
        if let Some(embedded) = embedded {
            writer.write_section_header(&SectionHeader {
                name: embedded_name,
                sh_type: SHT_PROGBITS,
                sh_offset: embedded_at as u64,
                sh_size: embedded.len() as u64,
                sh_addralign: 1,
                ..section
            });
        }
        if self.all.is_some() {
            writer.write_symtab_section_header(1);
            writer.write_strtab_section_header();
        }
        if self.exported.is_some() {
            writer.write_dynsym_section_header(0, 1);
            writer.write_dynstr_section_header(0);
        }
        writer.write_shstrtab_section_header();
        bytes
    }

    /// Reserves space for both symbol tables, and returns their symbols.
    fn reserve_symbols(&self, writer: &mut Writer<'_>) -> (Vec<Sym>, Vec<Sym>) {
        let (mut all, mut exported) = (Vec::new(), Vec::new());
        if let Some(symbols) = &self.all {
            writer.reserve_null_symbol_index();
            for symbol in symbols {
                all.push(written(symbol, writer.add_string(symbol.name.as_bytes())));
                writer.reserve_symbol_index(None);
            }
            writer.reserve_symtab_section_index();
            writer.reserve_symtab();
            writer.reserve_strtab_section_index();
            writer.reserve_strtab();
        }
        if let Some(symbols) = &self.exported {
            writer.reserve_null_dynamic_symbol_index();
            for symbol in symbols {
                let name = writer.add_dynamic_string(symbol.name.as_bytes());
                exported.push(written(symbol, name));
                writer.reserve_dynamic_symbol_index();
            }
            writer.reserve_dynsym_section_index();
            writer.reserve_dynsym();
            writer.reserve_dynstr_section_index();
            writer.reserve_dynstr();
        }
        (all, exported)
    }

    fn write_headers(&self, writer: &mut Writer<'_>) {
        let header = FileHeader {
            os_abi: 0,
            abi_version: 0,
            e_type: ET_DYN,
            e_machine: self.machine,
            e_entry: 0,
            e_flags: 0,
        };
        writer.write_file_header(&header).unwrap();
        writer.write_align_program_headers();
        for segment in &self.segments {
            writer.write_program_header(&ProgramHeader {
                p_type: PT_LOAD,
                p_flags: segment.flags,
                p_offset: segment.offset,
                p_vaddr: segment.address,
                p_paddr: segment.address,
                p_filesz: segment.size,
                p_memsz: segment.size,
                p_align: 0x1000,
            });
        }
    }
}

fn written(symbol: &Symbol, name: object::write::StringId) -> Sym {
    Sym {
        name: Some(name),
        section: symbol.is_defined.then_some(SectionIndex(1)),
        st_info: symbol.binding << 4 | symbol.kind,
        st_other: 0,
        st_shndx: 0,
        st_value: symbol.address,
        st_size: symbol.size,
    }
}
