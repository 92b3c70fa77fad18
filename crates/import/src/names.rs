//! Names that occur in a trace, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Longest name that is kept, in bytes. Kernel functions are shorter.
const MAX_LENGTH: usize = 256;

/// Index of a name in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(u32);

impl NameId {
    /// The id of no name.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// All names in a trace.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, NameId, RandomState>,
}

impl Names {
    /// Returns the id of `name`, adding it if it is new. Long names are cut off.
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let mut length = name.len().min(MAX_LENGTH);
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        let name: Arc<str> = name[..length].into();
        if let Some(&id) = self.ids.get(&name) {
            return id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    /// Like [`Names::intern`], for bytes that end at the first zero. Invalid UTF-8 is replaced.
    pub(crate) fn intern_bytes(&mut self, bytes: &[u8]) -> NameId {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        match str::from_utf8(&bytes[..end]) {
            Ok(name) => self.intern(name),
            Err(_) => self.intern(&String::from_utf8_lossy(&bytes[..end])),
        }
    }

    pub(crate) fn get(&self, id: NameId) -> &Arc<str> {
        &self.names[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LENGTH, Names};

    #[test]
    fn names_are_stored_once_and_cut_at_a_character() {
        let mut names = Names::default();
        let sh = names.intern("sh");
        assert_eq!(names.intern_bytes(b"sh\0rest"), sh);
        let long = "é".repeat(MAX_LENGTH);
        let id = names.intern(&long);
        assert_eq!(names.get(id).len(), MAX_LENGTH);
        assert_eq!(names.intern(&long), id);
        let broken = names.intern_bytes(b"a\xffb");
        assert_eq!(&**names.get(broken), "a\u{fffd}b");
    }
}
