//! Structure layouts from a text file, for systems that publish no BTF.
//!
//! The file contains C declarations of structures. `@ OFFSET` after a field's name places the
//! field, and `size N` after the closing brace gives the size of the structure. All other offsets
//! and sizes follow the rules of C.

use std::collections::HashMap;

use super::{Btf, Kind, Member, Type};
use crate::error::{LayoutError, LayoutProblem};

mod lexer;

use lexer::{Token, Tokens};

/// Deepest nesting of structures.
const DEEPEST: usize = 16;
/// Largest structure in bytes, so that no offset in bits overflows 32 bits.
const LARGEST: u64 = 1 << 28;

/// Parses the declarations in `text`.
///
/// # Errors
/// Fails at the first invalid declaration.
pub fn parse(text: &str) -> Result<Btf, LayoutError> {
    let mut parser = Parser {
        tokens: Tokens::new(text)?,
        pointer: 8,
        types: vec![Type {
            name: 0,
            size_or_target: 0,
            kind: Kind::Other,
        }],
        strings: vec![0],
        alignments: vec![1],
        tags: HashMap::new(),
    };
    parser.file()?;
    Ok(Btf {
        types: parser.types,
        strings: parser.strings,
    })
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// Size of pointers and of `long`.
    pointer: u64,
    types: Vec<Type>,
    strings: Vec<u8>,
    /// Alignment of each type.
    alignments: Vec<u64>,
    /// Structures and unions by tag.
    tags: HashMap<&'a str, u32>,
}

/// Type of a field, before its declarator adds pointers and arrays.
#[derive(Clone, Copy)]
enum Base<'a> {
    Known(u32),
    /// A type that this file does not define. Only pointers to it can be declared.
    Unknown(&'a str),
}

/// Placement of the members that a structure has so far.
struct Extent {
    is_union: bool,
    /// End of the last member in bytes; in a union, of the largest one.
    end: u64,
    alignment: u64,
    members: Vec<Member>,
}

impl<'a> Parser<'a> {
    fn file(&mut self) -> Result<(), LayoutError> {
        while let Some(word) = self.tokens.peek() {
            match word {
                Token::Word("pointer") => {
                    self.tokens.next();
                    self.pointer = match self.tokens.number()? {
                        size @ (4 | 8) => size,
                        other => return Err(self.tokens.error(LayoutProblem::Pointer(other))),
                    };
                }
                Token::Word("struct" | "union") => {
                    self.aggregate(DEEPEST)?;
                }
                _ => return Err(self.tokens.expected("`struct`, `union` or `pointer`")),
            }
            self.tokens.symbol(';')?;
        }
        if self.tags.is_empty() {
            return Err(self.tokens.error(LayoutProblem::Empty));
        }
        Ok(())
    }

    /// Parses `struct TAG { … }` or `struct TAG`.
    fn aggregate(&mut self, depth: usize) -> Result<Base<'a>, LayoutError> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| self.tokens.error(LayoutProblem::TooDeep))?;
        let is_union = self.tokens.next() == Some(Token::Word("union"));
        let tag = match self.tokens.peek() {
            Some(Token::Word(tag)) => {
                self.tokens.next();
                Some(tag)
            }
            _ => None,
        };
        if self.tokens.peek() != Some(Token::Symbol('{')) {
            let Some(tag) = tag else {
                return Err(self.tokens.expected("`{` or the name of a structure"));
            };
            let known = self.tags.get(tag);
            return Ok(known.map_or(Base::Unknown(tag), |&number| Base::Known(number)));
        }
        if let Some(tag) = tag.filter(|tag| self.tags.contains_key(tag)) {
            return Err(self.tokens.error(LayoutProblem::Twice(tag.to_owned())));
        }
        self.tokens.symbol('{')?;
        let mut extent = Extent {
            is_union,
            end: 0,
            alignment: 1,
            members: Vec::new(),
        };
        while self.tokens.peek() != Some(Token::Symbol('}')) {
            self.member(&mut extent, depth)?;
        }
        self.tokens.symbol('}')?;
        let number = self.finish(tag, extent)?;
        if let Some(tag) = tag {
            self.tags.insert(tag, number);
        }
        Ok(Base::Known(number))
    }

    /// Ends a structure, with the size that the file gives or that follows from its members.
    fn finish(&mut self, tag: Option<&str>, extent: Extent) -> Result<u32, LayoutError> {
        let mut size = extent.end.next_multiple_of(extent.alignment);
        if self.tokens.peek() == Some(Token::Word("size")) {
            self.tokens.next();
            size = self.tokens.number()?;
            if size < extent.end {
                let problem = LayoutProblem::TooSmall {
                    size,
                    end: extent.end,
                };
                return Err(self.tokens.error(problem));
            }
        }
        if !(1..=LARGEST).contains(&size) {
            return Err(self.tokens.error(LayoutProblem::Size(size)));
        }
        let kind = Kind::Aggregate {
            members: extent.members,
            is_union: extent.is_union,
        };
        Ok(self.add(tag, narrow(size), kind, extent.alignment))
    }

    /// Parses the declaration of one or more fields of the same type.
    fn member(&mut self, extent: &mut Extent, depth: usize) -> Result<(), LayoutError> {
        let base = self.base(depth)?;
        let is_anonymous = self.tokens.peek() == Some(Token::Symbol(';'));
        if is_anonymous && let Base::Known(number) = base {
            let is_aggregate = |kind: &Kind| matches!(kind, Kind::Aggregate { .. });
            if !is_aggregate(&self.types[number as usize].kind) {
                return Err(self.tokens.expected("the name of a field"));
            }
            self.place(extent, "", number, None)?;
        } else {
            loop {
                self.declarator(extent, base)?;
                if self.tokens.peek() != Some(Token::Symbol(',')) {
                    break;
                }
                self.tokens.next();
            }
        }
        self.tokens.symbol(';')
    }

    fn base(&mut self, depth: usize) -> Result<Base<'a>, LayoutError> {
        while let Some(Token::Word("const" | "volatile")) = self.tokens.peek() {
            self.tokens.next();
        }
        if let Some(Token::Word("struct" | "union")) = self.tokens.peek() {
            return self.aggregate(depth);
        }
        let Some(Token::Word(first)) = self.tokens.peek() else {
            return Err(self.tokens.expected("the type of a field, or `}`"));
        };
        self.tokens.next();
        if first == "enum" {
            if let Some(Token::Word(_)) = self.tokens.peek() {
                self.tokens.next();
            }
            return Ok(Base::Known(self.scalar(4)));
        }
        let mut words = vec![first];
        while is_keyword(first)
            && let Some(Token::Word(word)) = self.tokens.peek()
            && is_keyword(word)
        {
            words.push(word);
            self.tokens.next();
        }
        Ok(match size_of(&words, self.pointer) {
            Some(size) => Base::Known(self.scalar(size)),
            None => Base::Unknown(first),
        })
    }

    /// Parses `*name[3] @ 0x18`.
    fn declarator(&mut self, extent: &mut Extent, base: Base<'a>) -> Result<(), LayoutError> {
        let mut is_pointer = false;
        while let Some(Token::Symbol('*')) = self.tokens.peek() {
            self.tokens.next();
            is_pointer = true;
        }
        let name = self.tokens.word("the name of a field")?;
        let mut number = match base {
            _ if is_pointer => self.scalar(self.pointer),
            Base::Known(number) => number,
            Base::Unknown(name) => {
                let problem = LayoutProblem::UnknownType(name.to_owned());
                return Err(self.tokens.error(problem));
            }
        };
        let mut counts = Vec::new();
        while let Some(Token::Symbol('[')) = self.tokens.peek() {
            self.tokens.next();
            counts.push(self.tokens.number()?);
            self.tokens.symbol(']')?;
        }
        let count = counts.into_iter().try_fold(1_u64, u64::checked_mul);
        let size = self.size_of_type(number);
        let bytes = count.and_then(|count| count.checked_mul(size));
        let Some(count) = count.filter(|_| bytes.is_some_and(|bytes| bytes <= LARGEST)) else {
            return Err(self.tokens.error(LayoutProblem::Size(u64::MAX)));
        };
        if count != 1 {
            let kind = Kind::Array {
                element: number,
                count: narrow(count),
            };
            number = self.add(None, 0, kind, self.alignments[number as usize]);
        }
        let mut at = None;
        match self.tokens.peek() {
            Some(Token::Symbol('@')) => {
                self.tokens.next();
                at = Some(self.tokens.number()?);
            }
            Some(Token::Symbol(':')) => {
                return Err(self.tokens.error(LayoutProblem::Bitfield(name.to_owned())));
            }
            _ => {}
        }
        self.place(extent, name, number, at)
    }

    /// Adds a member at a given offset, or at the next one that suits its alignment.
    fn place(
        &mut self,
        extent: &mut Extent,
        name: &str,
        number: u32,
        at: Option<u64>,
    ) -> Result<(), LayoutError> {
        let alignment = self.alignments[number as usize];
        let next = if extent.is_union { 0 } else { extent.end };
        let offset = at.unwrap_or_else(|| next.next_multiple_of(alignment));
        if offset < next {
            let problem = LayoutProblem::Overlap {
                field: name.to_owned(),
                offset,
                end: next,
            };
            return Err(self.tokens.error(problem));
        }
        let end = offset.saturating_add(self.size_of_type(number));
        if end > LARGEST {
            return Err(self.tokens.error(LayoutProblem::Size(end)));
        }
        let member = Member {
            name: self.intern(name),
            type_number: number,
            bit_offset: offset * 8,
            bits: 0,
        };
        extent.members.push(member);
        extent.end = extent.end.max(end);
        extent.alignment = extent.alignment.max(alignment);
        Ok(())
    }

    fn size_of_type(&self, number: u32) -> u64 {
        let found = &self.types[number as usize];
        match found.kind {
            Kind::Array { element, count } => u64::from(count) * self.size_of_type(element),
            _ => u64::from(found.size_or_target),
        }
    }

    /// Adds a number or pointer of this size.
    fn scalar(&mut self, size: u64) -> u32 {
        // A machine with pointers of 4 bytes aligns larger numbers to 4 bytes.
        self.add(None, narrow(size), Kind::Sized, size.min(self.pointer))
    }

    fn add(&mut self, tag: Option<&str>, size: u32, kind: Kind, alignment: u64) -> u32 {
        let name = tag.map_or(0, |tag| self.intern(tag));
        self.types.push(Type {
            name,
            size_or_target: size,
            kind,
        });
        self.alignments.push(alignment);
        narrow(self.types.len() as u64 - 1)
    }

    fn intern(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = narrow(self.strings.len() as u64);
        self.strings.extend(name.bytes().chain([0]));
        at
    }
}

/// Converts a number that the limits of the parser keep far below 2^32.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "char" | "short" | "int" | "long" | "unsigned" | "signed"
    )
}

/// Returns the size of a number type; `None` for other types.
fn size_of(words: &[&str], pointer: u64) -> Option<u64> {
    if words.iter().all(|word| is_keyword(word)) {
        let longs = words.iter().filter(|&&word| word == "long").count();
        return Some(match longs {
            0 if words.contains(&"char") => 1,
            0 if words.contains(&"short") => 2,
            0 => 4,
            1 => pointer,
            _ => 8,
        });
    }
    Some(match *words.first()? {
        "u8" | "s8" | "uint8_t" | "int8_t" | "bool" | "_Bool" => 1,
        "u16" | "s16" | "uint16_t" | "int16_t" => 2,
        "u32" | "s32" | "uint32_t" | "int32_t" => 4,
        "u64" | "s64" | "uint64_t" | "int64_t" => 8,
        "size_t" | "ssize_t" | "uintptr_t" | "intptr_t" => pointer,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
