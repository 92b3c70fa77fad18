//! The user code in which a thread waited.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Stack;

/// Separates the object from the functions, and these from the waker's functions, in the text form.
const SEPARATOR: char = '\t';

/// Maximum length of an object's name, in bytes.
const LONGEST_OBJECT: usize = 256;

/// The user code in which a thread waited, and the object that it waited for.
///
/// [`fmt::Display`] writes the form that recordings contain: the object, a tab, and the functions,
/// innermost first, separated by semicolons. A function is the name of its file and the offset in
/// it. If the waker's functions are known, another tab and these follow.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct WaitCode {
    /// File that the system call used or that was mapped at the address of the page fault, as its
    /// path or, if that is unknown, its inode number and device. For a futex, its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Functions on the stack in user mode, innermost first. If the stack could not be unwound
    /// completely, the outermost ones are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<CodePlace>,
    /// Functions on the stack of the thread that ended the wait, in the same form. Empty if they
    /// were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken_from: Vec<CodePlace>,
}

/// A place in the code of a program.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct CodePlace {
    /// Name of the function, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Name of the executable file or library.
    pub file: String,
    /// Offset in the file, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

impl WaitCode {
    /// Maximum number of functions.
    pub const MAX_DEPTH: usize = 32;

    /// Creates the code from an object and the functions, innermost first.
    pub fn new(object: Option<&str>, stack: impl IntoIterator<Item = CodePlace>) -> Self {
        let object = object.filter(|object| !object.is_empty());
        let clean = |c: char| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        };
        let cleaned = object.map(|object| {
            let mut cleaned = String::new();
            for c in object.chars().map(clean) {
                if cleaned.len() + c.len_utf8() > LONGEST_OBJECT {
                    break;
                }
                cleaned.push(c);
            }
            cleaned
        });
        Self {
            object: cleaned,
            stack: stack.into_iter().take(Self::MAX_DEPTH).collect(),
            woken_from: Vec::new(),
        }
    }

    /// Adds the functions of the thread that ended the wait, innermost first.
    #[must_use]
    pub fn woken_from(mut self, stack: impl IntoIterator<Item = CodePlace>) -> Self {
        self.woken_from = stack.into_iter().take(Self::MAX_DEPTH).collect();
        self
    }

    /// Reads the text form. Accepts any text.
    pub fn from_text(text: &str) -> Self {
        let (object, stacks) = text.split_once(SEPARATOR).unwrap_or((text, ""));
        let (stack, waker) = stacks.split_once(SEPARATOR).unwrap_or((stacks, ""));
        Self::new(Some(object), CodePlace::all_from_text(stack))
            .woken_from(CodePlace::all_from_text(waker))
    }

    /// Names the functions that `function` knows, given the file's name and the offset.
    #[must_use]
    pub fn named<'a>(mut self, function: impl Fn(&str, u64) -> Option<&'a str>) -> Self {
        for place in self.stack.iter_mut().chain(&mut self.woken_from) {
            let name = place
                .offset
                .and_then(|offset| function(&place.file, offset));
            place.function = name.map(str::to_owned).or(place.function.take());
        }
        self
    }

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.object.is_none() && self.stack.is_empty() && self.woken_from.is_empty()
    }
}

impl CodePlace {
    /// Creates the place at an offset in a file whose name comes from [`Stack::file_name`].
    pub fn new(file: &str, offset: Option<u64>) -> Self {
        Self {
            function: None,
            file: file.to_owned(),
            offset,
        }
    }

    /// Returns the innermost place in user mode on a sampled stack, whose function has no name yet.
    pub fn from_stack(stack: &Stack) -> Option<Self> {
        let file = &stack.frames().first()?.name;
        let offset = stack
            .frames()
            .get(1)
            .and_then(|place| place.offset_in(file));
        Some(Self::new(file, offset))
    }

    fn all_from_text(text: &str) -> impl Iterator<Item = Self> {
        let places = text.split(';').filter(|place| !place.is_empty());
        places.map(Self::from_text)
    }

    fn from_text(text: &str) -> Self {
        let parts = text.rsplit_once("+0x");
        let place = parts.and_then(|(file, offset)| {
            let offset = u64::from_str_radix(offset, 16).ok()?;
            Some(Self::new(file, Some(offset)))
        });
        place.unwrap_or_else(|| Self::new(text, None))
    }
}

impl fmt::Display for WaitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.object.as_deref().unwrap_or_default())?;
        write!(f, "{SEPARATOR}")?;
        write_stack(f, &self.stack)?;
        if !self.woken_from.is_empty() {
            write!(f, "{SEPARATOR}")?;
            write_stack(f, &self.woken_from)?;
        }
        Ok(())
    }
}

fn write_stack(f: &mut fmt::Formatter<'_>, stack: &[CodePlace]) -> fmt::Result {
    for (depth, place) in stack.iter().enumerate() {
        let separator = if depth == 0 { "" } else { ";" };
        write!(f, "{separator}{}", place.file)?;
        if let Some(offset) = place.offset {
            write!(f, "+{offset:#x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CodePlace, WaitCode};

    #[test]
    fn the_text_form_can_be_read_back() {
        let stack = [
            CodePlace::new("libc.so.6", Some(0x9_1234)),
            CodePlace::new("a+0xb c", Some(0)),
            CodePlace::new("[generated code]", None),
        ];
        for object in [None, Some("/var/lib/a;b"), Some("0x7f0012c0")] {
            let code = WaitCode::new(object, stack.clone());
            assert_eq!(WaitCode::from_text(&code.to_string()), code);
            let code = code.woken_from(stack[1..].to_vec());
            assert_eq!(code.woken_from.len(), 2);
            assert_eq!(WaitCode::from_text(&code.to_string()), code);
        }
        assert!(WaitCode::from_text("").is_empty());
    }

    #[test]
    fn functions_are_named_by_file_and_offset() {
        let code = WaitCode::from_text("\tlibc.so.6+0x10;gamesrv+0x20;gamesrv");
        let code = code.named(|file, offset| match (file, offset) {
            ("gamesrv", 0x20) => Some("world::update"),
            _ => None,
        });
        let names: Vec<_> = code.stack.iter().map(|p| p.function.as_deref()).collect();
        assert_eq!(names, [None, Some("world::update"), None]);
        let code = WaitCode::from_text("\t\tgamesrv+0x20").named(|_, _| Some("unlock"));
        assert_eq!(code.woken_from[0].function.as_deref(), Some("unlock"));
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in ".{0,60}", object in ".{0,300}") {
            let _ = WaitCode::from_text(&text);
            let code = WaitCode::new(Some(&object), []);
            prop_assert_eq!(WaitCode::from_text(&code.to_string()), code);
        }
    }
}
