//! Reads only those numbers in a Parquet file that determine how much memory the file takes.
//!
//! Footers and page headers are structures in Thrift's compact protocol, with numbered and typed
//! fields. A [`Skimmer`] walks through these structures without allocating memory.

/// Maximum nesting depth of structures in a Parquet file.
const DEPTH: usize = 12;

/// Why skimming stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end in the middle of a value.
    Short,
    /// The bytes are not valid Thrift.
    Nonsense,
    /// There are too many structures.
    TooMany,
}

/// Numbers of nested fields, from the outermost structure inwards.
type Path<'p> = &'p [i16];

/// A parser that walks through structures without storing them.
pub(super) struct Skimmer<'b> {
    bytes: &'b [u8],
    at: usize,
    structures: u64,
    path: Vec<i16>,
    /// Function that returns whether the field at a path may have the given type.
    fits: fn(Path<'_>, u8) -> bool,
}

impl<'b> Skimmer<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            structures: 0,
            path: Vec::with_capacity(DEPTH),
            fits: |_, _| true,
        }
    }

    /// Skims one structure, which may contain at most `most` other structures. Passes each integer
    /// and the length of each list to `see`.
    pub(super) fn structure(
        &mut self,
        most: u64,
        see: &mut dyn FnMut(Path<'_>, i64),
    ) -> Result<(), Stop> {
        if self.path.len() == DEPTH {
            return Err(Stop::Nonsense);
        }
        self.structures += 1;
        if self.structures > most {
            return Err(Stop::TooMany);
        }
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.integer()?).map_err(|_| Stop::Nonsense)?,
                step => id.checked_add(step.into()).ok_or(Stop::Nonsense)?,
            };
            self.path.push(id);
            if !(self.fits)(&self.path, kind) {
                return Err(Stop::Nonsense);
            }
            // The type of a Boolean field is also its value, so no bytes follow it.
            if !matches!(kind, TRUE | FALSE) {
                self.value(kind, most, see)?;
            }
            self.path.pop();
        }
    }

    fn value(
        &mut self,
        kind: u8,
        most: u64,
        see: &mut dyn FnMut(Path<'_>, i64),
    ) -> Result<(), Stop> {
        match kind {
            // In a list or map, each Boolean takes one byte. The library does not skip it, though,
            // and would continue in bytes that were not checked. Footers and page headers contain
            // no such Booleans.
            TRUE | FALSE => Err(Stop::Nonsense),
            BYTE => self.skip(1),
            SHORT..=LONG => {
                let value = self.integer()?;
                see(&self.path, value);
                Ok(())
            }
            DOUBLE => self.skip(8),
            BINARY => {
                let length = self.varint()?;
                self.skip(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let length = match head >> 4 {
                    15 => self.varint()?,
                    length => length.into(),
                };
                see(&self.path, i64::try_from(length).unwrap_or(i64::MAX));
                (0..length).try_for_each(|_| self.value(head & 0x0f, most, see))
            }
            MAP => {
                let length = self.varint()?;
                let kinds = if length > 0 { self.byte()? } else { 0 };
                (0..length).try_for_each(|_| {
                    self.value(kinds >> 4, most, see)?;
                    self.value(kinds & 0x0f, most, see)
                })
            }
            STRUCTURE => self.structure(most, see),
            _ => Err(Stop::Nonsense),
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, length: u64) -> Result<(), Stop> {
        let length = usize::try_from(length).map_err(|_| Stop::Nonsense)?;
        let end = self.at.checked_add(length).ok_or(Stop::Nonsense)?;
        if end > self.bytes.len() {
            return Err(Stop::Short);
        }
        self.at = end;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Stop::Nonsense)
    }

    /// Decodes a signed number in zigzag encoding, in which 0, -1, 1, -2 are stored as 0, 1, 2, 3.
    fn integer(&mut self) -> Result<i64, Stop> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const SHORT: u8 = 4;
const LONG: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCTURE: u8 = 12;

/// Numbers in a page header that matter for the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    kind: i64,
    /// Size before compression.
    pub(super) unpacked: i64,
    /// Compressed size of the page in the file.
    pub(super) packed: i64,
    pub(super) values: i64,
    encoding: i64,
}

impl PageHeader {
    /// Maximum number of structures in a page header: the header itself, the header for the page
    /// type, and statistics.
    const STRUCTURES: u64 = 8;

    /// Reads the header at the start of `bytes`. Returns the header and its length.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, usize), Stop> {
        let mut header = Self::default();
        let mut skimmer = Skimmer::new(bytes);
        skimmer.fits = Self::fits;
        skimmer.structure(Self::STRUCTURES, &mut |path, value| match path {
            [1] => header.kind = value,
            [2] => header.unpacked = value,
            [3] => header.packed = value,
            // Each page type has its own fields: field 5 is for a data page, 7 for a dictionary,
            // and 8 for version 2 of a data page.
            [5 | 7 | 8, 1] => header.values = header.values.max(value),
            [5 | 7, 2] | [8, 4] => header.encoding = value,
            _ => {}
        })?;
        Ok((header, skimmer.at))
    }

    /// Returns whether a field has the type that the library expects. The library looks only at the
    /// field's number. If the type were different, it would continue in bytes that were not
    /// checked, and look for up to 2^31 values beyond the end of the file.
    fn fits(path: Path<'_>, kind: u8) -> bool {
        match path {
            [1..=4] | [5, 1..=4] | [7, 1..=2] | [8, 1..=6] => matches!(kind, SHORT..=LONG),
            [5..=8] => kind == STRUCTURE,
            [7, 3] | [8, 7] => matches!(kind, TRUE | FALSE),
            _ => true,
        }
    }

    pub(super) fn is_dictionary(&self) -> bool {
        const DICTIONARY_PAGE: i64 = 2;
        self.kind == DICTIONARY_PAGE
    }

    /// Returns whether the memory needed to decode the page depends only on the page's size. Two
    /// text encodings also store a number of values, and the library allocates memory for that
    /// number.
    pub(super) fn has_bounded_encoding(&self) -> bool {
        const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
        const DELTA_BYTE_ARRAY: i64 = 7;
        !matches!(self.encoding, DELTA_LENGTH_BYTE_ARRAY | DELTA_BYTE_ARRAY)
    }
}

#[cfg(test)]
mod tests {
    use super::{PageHeader, Skimmer, Stop};

    #[test]
    fn a_page_header_has_its_sizes() {
        // A data page of type 0, with 100 bytes (50 in the file) and 7 values in plain encoding.
        let header = [
            0x15, 0, 0x15, 200, 1, 0x15, 100, 0x2c, 0x15, 14, 0x15, 0, 0, 0,
        ];
        let (read, length) = PageHeader::read(&header).unwrap();
        assert_eq!((read.unpacked, read.packed, read.values), (100, 50, 7));
        assert_eq!(length, header.len());
        assert!(!read.is_dictionary() && read.has_bounded_encoding());
        for end in 0..header.len() {
            assert_eq!(PageHeader::read(&header[..end]), Err(Stop::Short), "{end}");
        }
    }

    /// A fuzzer found a table that took forever to read, because it had a number where the library
    /// expects a structure.
    #[test]
    fn page_headers_with_fields_of_unexpected_types_are_rejected() {
        for header in [
            // Field 6, an index page, is a number here. In the next header, field 2 is a structure.
            &[0x65, 0x15, 0, 0][..],
            &[0x15, 0, 0x1c, 0, 0],
            // Field 9 is a list of one Boolean.
            &[0x99, 0x11, 1, 0],
        ] {
            assert_eq!(PageHeader::read(header), Err(Stop::Nonsense), "{header:x?}");
        }
    }

    #[test]
    fn no_bytes_are_too_deep_or_too_many() {
        let nested = [0x1c; 100];
        let skim = |bytes: &[u8]| Skimmer::new(bytes).structure(1_000, &mut |_, _| ());
        assert_eq!(skim(&nested), Err(Stop::Nonsense));
        // The list claims to contain 2^60 structures.
        let list = [
            0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f,
        ];
        let many = [&list[..], &[0; 2_000]].concat();
        assert_eq!(skim(&many), Err(Stop::TooMany));
        assert_eq!(skim(&list), Err(Stop::Short));
    }
}
