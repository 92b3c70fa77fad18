//! Reads numbers and strings from bytes, in either byte order.

/// A position in bytes. Every method returns `None` at the end of the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'b> {
    rest: &'b [u8],
    is_big_endian: bool,
}

impl<'b> Bytes<'b> {
    pub(crate) fn new(bytes: &'b [u8], is_big_endian: bool) -> Self {
        Self {
            rest: bytes,
            is_big_endian,
        }
    }

    /// Number of bytes left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns the next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// Returns the bytes up to the next zero byte, and skips that byte.
    pub(crate) fn text(&mut self) -> Option<&'b [u8]> {
        let length = memchr::memchr(0, self.rest)?;
        let text = self.take(length);
        self.take(1)?;
        text
    }

    /// Returns the next 1, 2, 4 or 8 bytes as a number.
    pub(crate) fn number(&mut self, size: usize) -> Option<u64> {
        let is_big_endian = self.is_big_endian;
        number(self.take(size)?, is_big_endian)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.number(2)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.number(4)?.try_into().ok()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.number(8)
    }

    /// Returns a block of bytes that follows its length, which is a number of `size` bytes.
    pub(crate) fn block(&mut self, size: usize) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number(size)?).ok()?;
        self.take(length)
    }

    /// Skips this text, if it comes next.
    pub(crate) fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }
}

/// Converts 1 to 8 bytes to a number.
pub(crate) fn number(bytes: &[u8], is_big_endian: bool) -> Option<u64> {
    if bytes.len() > 8 {
        return None;
    }
    let mut all = [0; 8];
    if is_big_endian {
        all[8 - bytes.len()..].copy_from_slice(bytes);
        return Some(u64::from_be_bytes(all));
    }
    all[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(all))
}
