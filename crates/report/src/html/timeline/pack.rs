//! Numbers as bytes, bytes as text: what a browser unpacks by itself.

use crate::html::policy::base64;

/// How hard the numbers are pressed: twice as hard saves a fiftieth.
const LEVEL: u8 = 6;

/// Columns of numbers, one after the other.
#[derive(Debug, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// A number in as many groups of 7 bits as it takes, the lowest first.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push((number & 0x7f) as u8);
    }

    /// A number that may be negative, the sign in its lowest bit.
    pub(super) fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    /// Numbers as the steps between them; these may go back.
    pub(super) fn steps(&mut self, numbers: impl IntoIterator<Item = i64>) {
        let mut before = 0;
        for number in numbers {
            self.signed(number - before);
            before = number;
        }
    }

    /// All of it, deflated (RFC 1951), in base 64.
    pub(super) fn text(self) -> String {
        base64(&miniz_oxide::deflate::compress_to_vec(&self.0, LEVEL))
    }
}

#[cfg(test)]
mod tests {
    use super::Pack;

    #[test]
    fn numbers_are_as_long_as_they_are_large() {
        let mut pack = Pack::default();
        pack.number(0);
        pack.number(127);
        pack.number(300);
        pack.signed(-1);
        pack.steps([5, 3]);
        assert_eq!(pack.0, [0, 127, 0xac, 2, 1, 10, 3]);
        let mut large = Pack::default();
        large.number(u64::MAX);
        assert_eq!(large.0.len(), 10);
    }
}
