//! Encodes a histogram as bytes, to be stored in a column of a file. The encoding takes half the
//! space of a list of numbers and is quicker to merge.
//!
//! The first byte is the version of the encoding, 1. Each non-empty bucket follows, in order, as
//! two varints (LEB128, as in Protocol Buffers): the number of empty buckets since the previous
//! non-empty one, and the bucket's count. The encoding of an empty histogram is just the version
//! byte.

use super::Histogram;

/// Version of the encoding.
const VERSION: u8 = 1;

/// Why bytes could not be decoded as a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The first byte is not a known version.
    #[error("unknown histogram version {0}")]
    Version(u8),
    /// A number is cut off or too large, or a bucket index is out of range.
    #[error("invalid histogram")]
    Damaged,
}

impl Histogram {
    /// Encodes the histogram.
    pub fn to_blob(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut empty = 0;
        for &count in &self.counts {
            if count == 0 {
                empty += 1;
                continue;
            }
            put(&mut bytes, empty);
            put(&mut bytes, count);
            empty = 0;
        }
        bytes
    }

    /// Decodes a histogram encoded by [`Histogram::to_blob`].
    ///
    /// # Errors
    /// Returns an error if the version is unknown, or if the bytes are damaged or describe a bucket
    /// beyond [`Histogram::BUCKETS`].
    pub fn from_blob(bytes: &[u8]) -> Result<Self, BlobError> {
        let (&version, mut rest) = bytes.split_first().ok_or(BlobError::Damaged)?;
        if version != VERSION {
            return Err(BlobError::Version(version));
        }
        let mut histogram = Self::default();
        let mut next = 0;
        while !rest.is_empty() {
            let empty = take(&mut rest).ok_or(BlobError::Damaged)?;
            let count = take(&mut rest).ok_or(BlobError::Damaged)?;
            let empty = usize::try_from(empty).map_err(|_| BlobError::Damaged)?;
            let index = empty.checked_add(next).ok_or(BlobError::Damaged)?;
            let bucket = histogram.counts.get_mut(index).ok_or(BlobError::Damaged)?;
            *bucket = count;
            next = index + 1;
        }
        Ok(histogram)
    }
}

/// Appends a number as a varint: seven bits per byte, least significant bits first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

/// Removes a varint from the start of `bytes` and returns its value; `None` if the varint is cut
/// off or exceeds 64 bits.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits.leading_zeros() < shift {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BlobError, Histogram};
    use crate::Nanos;

    /// Generates arbitrary histograms. About two in three of their buckets are empty.
    fn histograms() -> impl Strategy<Value = Histogram> {
        let count = prop_oneof![4 => Just(0), 1 => 1..200_u64, 1 => any::<u64>()];
        prop::collection::vec(count, Histogram::BUCKETS)
            .prop_map(|counts| Histogram::from_counts(&counts).unwrap())
    }

    proptest! {
        #[test]
        fn histograms_round_trip(histogram in histograms()) {
            prop_assert_eq!(Histogram::from_blob(&histogram.to_blob()), Ok(histogram));
        }

        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes: Vec<u8>, tail: Vec<u8>) {
            drop(Histogram::from_blob(&bytes));
            drop(Histogram::from_blob(&[&[1], &tail[..]].concat()));
        }
    }

    #[test]
    fn the_encoding_is_as_documented() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.to_blob(), [1]);
        // Fill buckets 1 and 4. The count 300 takes two bytes.
        histogram.record(Nanos(1));
        for _ in 0..300 {
            histogram.record(Nanos(4));
        }
        assert_eq!(histogram.to_blob(), [1, 1, 1, 2, 0xac, 0x02]);
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        assert_eq!(Histogram::from_blob(&[]), Err(BlobError::Damaged));
        assert_eq!(Histogram::from_blob(&[2]), Err(BlobError::Version(2)));
        assert_eq!(Histogram::from_blob(&[1, 0]), Err(BlobError::Damaged));
        // Bucket 140 does not exist, because the last index is 139.
        assert_eq!(
            Histogram::from_blob(&[1, 0x8c, 1, 1]),
            Err(BlobError::Damaged)
        );
        // This number needs more than 64 bits.
        let long = [&[1, 0][..], &[0xff; 9], &[2]].concat();
        assert_eq!(Histogram::from_blob(&long), Err(BlobError::Damaged));
    }
}
