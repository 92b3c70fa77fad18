//! Structure layouts from BTF, the type information that a kernel publishes about itself.
//!
//! The input can be any file, so every offset and index is checked.

pub mod layout;

use std::collections::HashSet;

use crate::WalkError;

const MAGIC: u16 = 0xeb9f;
/// Longest chain of typedefs and qualifiers, and deepest nesting of structures, that is followed.
const DEEPEST: usize = 32;
/// Size of a pointer on the 64-bit machines that ticktax supports.
const POINTER: u64 = 8;

/// Types of a kernel.
#[derive(Debug)]
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
}

#[derive(Debug)]
struct Type {
    name: u32,
    /// Size in bytes or number of another type, depending on the kind.
    size_or_target: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The type has the size in `size_or_target`.
    Sized,
    Pointer,
    Array {
        element: u32,
        count: u32,
    },
    /// A structure or union.
    Aggregate {
        members: Vec<Member>,
        is_union: bool,
    },
    /// A typedef or qualifier of the type in `size_or_target`.
    Alias,
    /// A type without a size, such as a function.
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    name: u32,
    type_number: u32,
    bit_offset: u64,
    /// Bits of a bitfield; 0 for other members.
    bits: u32,
}

/// A structure with the size and the holes that a compiler gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Number of the type in its BTF.
    number: u32,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Offset and length in bytes of each range between members that no member uses.
    pub holes: Vec<(u64, u64)>,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes. For a bitfield, the offset of the byte that contains its first bit.
    pub offset: u64,
    /// Size in bytes, at least 1.
    pub size: u64,
}

/// Reads numbers in the byte order of a file.
struct Reader<'a> {
    bytes: &'a [u8],
    is_swapped: bool,
}

impl Reader<'_> {
    fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.bytes.get(offset..offset.checked_add(4)?)?;
        let word = u32::from_ne_bytes(bytes.try_into().ok()?);
        Some(if self.is_swapped {
            word.swap_bytes()
        } else {
            word
        })
    }

    /// Returns `length` bytes that start `offset` bytes after the header.
    fn section(&self, header: u32, offset: u32, length: u32) -> Option<&[u8]> {
        let start = (header as usize).checked_add(offset as usize)?;
        self.bytes.get(start..start.checked_add(length as usize)?)
    }
}

impl Btf {
    /// Parses BTF.
    ///
    /// # Errors
    /// Returns [`WalkError::Btf`] if the bytes are not valid BTF.
    pub fn parse(bytes: &[u8]) -> Result<Self, WalkError> {
        Self::parsed(bytes).ok_or(WalkError::Btf)
    }

    fn parsed(bytes: &[u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let is_swapped = magic == MAGIC.swap_bytes();
        if magic != MAGIC && !is_swapped {
            return None;
        }
        let reader = Reader { bytes, is_swapped };
        let header = reader.word(4)?;
        let types = reader.section(header, reader.word(8)?, reader.word(12)?)?;
        let strings = reader.section(header, reader.word(16)?, reader.word(20)?)?;
        let strings = strings.to_vec();
        let reader = Reader {
            bytes: types,
            is_swapped,
        };
        // Type 0 is `void`.
        let mut types = vec![Type {
            name: 0,
            size_or_target: 0,
            kind: Kind::Other,
        }];
        let mut at = 0;
        while at < reader.bytes.len() {
            let (kind, length) = kind(&reader, at)?;
            types.push(Type {
                name: reader.word(at)?,
                size_or_target: reader.word(at + 8)?,
                kind,
            });
            at = at.checked_add(12)?.checked_add(length)?;
        }
        (at == reader.bytes.len()).then_some(Self { types, strings })
    }

    fn name(&self, offset: u32) -> &str {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        std::str::from_utf8(&rest[..end.unwrap_or(0)]).unwrap_or_default()
    }

    /// Finds a structure by name.
    ///
    /// # Errors
    /// Returns [`WalkError::NoStructure`], with similar names, for an unknown name.
    pub fn structure(&self, name: &str) -> Result<Structure, WalkError> {
        let mut names = HashSet::new();
        for (number, found) in (0..).zip(&self.types) {
            let Kind::Aggregate { members, is_union } = &found.kind else {
                continue;
            };
            let this = self.name(found.name);
            if this == name && !is_union {
                return Ok(Structure {
                    number,
                    name: name.to_owned(),
                    size: u64::from(found.size_or_target),
                    holes: self.holes(members, u64::from(found.size_or_target)),
                });
            }
            names.insert(this);
        }
        Err(WalkError::NoStructure {
            name: name.to_owned(),
            similar: similar(name, names.into_iter()),
        })
    }

    /// Finds a member by its path, for example `i_data.host`. Members of anonymous structures and
    /// unions belong to the structure that contains them.
    ///
    /// # Errors
    /// Returns [`WalkError::NoField`], with similar names, for an unknown name.
    pub fn field(&self, structure: &Structure, path: &str) -> Result<Field, WalkError> {
        let mut number = structure.number;
        let mut base = 0;
        let mut found = None;
        for part in path.split('.') {
            let mut names = Vec::new();
            let member = self.member(number, part, DEEPEST, &mut names);
            let member = member.ok_or_else(|| WalkError::NoField {
                structure: structure.name.clone(),
                name: path.to_owned(),
                similar: similar(part, names.into_iter()),
            })?;
            base += member.bit_offset;
            number = member.type_number;
            found = Some(member);
        }
        let size = match found {
            Some(member) if member.bits > 0 => u64::from(member.bits).div_ceil(8),
            _ => self.size(number, DEEPEST).unwrap_or(1),
        };
        Ok(Field {
            offset: base / 8,
            size: size.max(1),
        })
    }

    /// Finds a member of a type by name. Collects the names of all members on the way.
    fn member<'a>(
        &'a self,
        number: u32,
        name: &str,
        depth: usize,
        names: &mut Vec<&'a str>,
    ) -> Option<Member> {
        let depth = depth.checked_sub(1)?;
        let found = self.types.get(number as usize)?;
        let members = match &found.kind {
            Kind::Alias => return self.member(found.size_or_target, name, depth, names),
            Kind::Aggregate { members, .. } => members,
            _ => return None,
        };
        for member in members {
            let this = self.name(member.name);
            if this.is_empty() {
                if let Some(inner) = self.member(member.type_number, name, depth, names) {
                    return Some(Member {
                        bit_offset: inner.bit_offset + member.bit_offset,
                        ..inner
                    });
                }
            } else if this == name {
                return Some(*member);
            } else {
                names.push(this);
            }
        }
        None
    }

    /// Returns the size of a type in bytes; `None` if it has none.
    fn size(&self, number: u32, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let found = self.types.get(number as usize)?;
        match found.kind {
            Kind::Sized | Kind::Aggregate { .. } => Some(u64::from(found.size_or_target)),
            Kind::Pointer => Some(POINTER),
            Kind::Array { element, count } => {
                self.size(element, depth)?.checked_mul(u64::from(count))
            }
            Kind::Alias => self.size(found.size_or_target, depth),
            Kind::Other => None,
        }
    }

    fn holes(&self, members: &[Member], size: u64) -> Vec<(u64, u64)> {
        let mut used: Vec<(u64, u64)> = members
            .iter()
            .map(|member| {
                let bits = match member.bits {
                    0 => self.size(member.type_number, DEEPEST).unwrap_or(0) * 8,
                    bits => u64::from(bits),
                };
                let end = member.bit_offset.saturating_add(bits);
                (member.bit_offset / 8, end.div_ceil(8))
            })
            .collect();
        used.push((size, size));
        used.sort_unstable();
        let mut holes = Vec::new();
        let mut end = 0;
        for (start, stop) in used {
            if start > end {
                holes.push((end, start - end));
            }
            end = end.max(stop);
        }
        holes
    }
}

/// Reads the part of a type that depends on its kind, and returns the length of that part.
fn kind(reader: &Reader<'_>, at: usize) -> Option<(Kind, usize)> {
    let info = reader.word(at.checked_add(4)?)?;
    let count = (info & 0xffff) as usize;
    let has_bitfields = info >> 31 == 1;
    let after = at.checked_add(12)?;
    Some(match (info >> 24) & 0x1f {
        1 => (Kind::Sized, 4),
        16 => (Kind::Sized, 0),
        2 => (Kind::Pointer, 0),
        3 => {
            let kind = Kind::Array {
                element: reader.word(after)?,
                count: reader.word(after + 8)?,
            };
            (kind, 12)
        }
        number @ (4 | 5) => {
            let member = |place: usize| {
                let at = after + 12 * place;
                let offset = reader.word(at + 8)?;
                let (bits, bit_offset) = if has_bitfields {
                    (offset >> 24, offset & 0x00ff_ffff)
                } else {
                    (0, offset)
                };
                Some(Member {
                    name: reader.word(at)?,
                    type_number: reader.word(at + 4)?,
                    bit_offset: u64::from(bit_offset),
                    bits,
                })
            };
            let members = (0..count).map(member).collect::<Option<Vec<_>>>()?;
            let kind = Kind::Aggregate {
                members,
                is_union: number == 5,
            };
            (kind, 12 * count)
        }
        6 => (Kind::Sized, 8 * count),
        19 => (Kind::Sized, 12 * count),
        8..=11 | 18 => (Kind::Alias, 0),
        7 | 12 => (Kind::Other, 0),
        13 => (Kind::Other, 8 * count),
        14 | 17 => (Kind::Other, 4),
        15 => (Kind::Other, 12 * count),
        _ => return None,
    })
}

/// Returns up to three names that are similar to `name`, most similar first.
fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = names.map(|other| (strsim::jaro_winkler(name, other), other));
    let mut near: Vec<(f64, &str)> = near.filter(|(score, _)| *score > 0.8).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup();
    near.into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::{Btf, Field};
    use crate::WalkError;

    /// Returns the BTF of `struct item { u32 state; /* hole of 4 */ void *next; union { u64 when;
    /// u32 flag; }; u8 low : 3, high : 5; /* hole of 39 */ struct { u64 host[2]; } data; }`, with
    /// `data` at offset 64.
    pub(crate) fn item() -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut name = |text: &str| -> u32 {
            let at = u32::try_from(strings.len()).unwrap();
            strings.extend(text.bytes().chain([0]));
            at
        };
        let kind = |number: u32, count: u32| (number << 24) | count;
        let bitfield = |bits: u32, offset: u32| (bits << 24) | offset;
        let words: Vec<Vec<u32>> = vec![
            vec![name("u32"), kind(1, 0), 4, 32],
            vec![name("u64"), kind(1, 0), 8, 64],
            vec![0, kind(2, 0), 0],
            vec![name("when_t"), kind(8, 0), 2],
            vec![0, kind(5, 2), 8, name("when"), 4, 0, name("flag"), 1, 0],
            vec![0, kind(3, 0), 0, 2, 1, 2],
            vec![0, kind(4, 1), 16, name("host"), 6, 0],
            vec![
                name("item"),
                kind(4, 6) | (1 << 31),
                80,
                name("state"),
                1,
                0,
                name("next"),
                3,
                64,
                0,
                5,
                128,
                name("low"),
                1,
                bitfield(3, 192),
                name("high"),
                1,
                bitfield(5, 195),
                name("data"),
                7,
                512,
            ],
        ];
        let types: Vec<u8> = words
            .into_iter()
            .flatten()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let length = |part: &[u8]| u32::try_from(part.len()).unwrap();
        let mut btf = super::MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        for word in [24, 0, length(&types), length(&types), length(&strings)] {
            btf.extend(word.to_ne_bytes());
        }
        btf.extend(types);
        btf.extend(strings);
        btf
    }

    #[test]
    fn fields_have_their_offsets_through_unions_typedefs_and_bitfields() {
        let btf = Btf::parse(&item()).unwrap();
        let item = btf.structure("item").unwrap();
        assert_eq!((item.size, &*item.holes), (80, &[(4, 4), (25, 39)][..]));
        for (path, offset, size) in [
            ("state", 0, 4),
            ("next", 8, 8),
            ("when", 16, 8),
            ("flag", 16, 4),
            ("low", 24, 1),
            ("high", 24, 1),
            ("data", 64, 16),
            ("data.host", 64, 16),
        ] {
            let field = btf.field(&item, path).unwrap();
            assert_eq!(field, Field { offset, size }, "{path}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_similar_ones() {
        let btf = Btf::parse(&item()).unwrap();
        let error = btf.structure("items").unwrap_err().to_string();
        assert!(error.contains("did you mean item?"), "{error}");
        let item = btf.structure("item").unwrap();
        let error = btf.field(&item, "stat").unwrap_err().to_string();
        assert!(error.contains("did you mean state?"), "{error}");
        assert!(btf.field(&item, "state.more").is_err());
        assert_eq!(Btf::parse(b"ELF").unwrap_err(), WalkError::Btf);
    }

    proptest! {
        #[test]
        fn damaged_btf_never_panics(
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..8), cut in 0_usize..400
        ) {
            let mut bytes = item();
            for (place, value) in changes {
                let place = place % bytes.len();
                bytes[place] = value;
            }
            bytes.truncate(bytes.len() - cut % bytes.len());
            if let Ok(btf) = Btf::parse(&bytes) && let Ok(item) = btf.structure("item") {
                for path in ["state", "when", "data.host", "nothing"] {
                    let _ = btf.field(&item, path);
                }
            }
        }
    }
}
