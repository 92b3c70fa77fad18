//! Marks that show whether a record is complete. They are needed on machines whose CPUs may see
//! each other's stores out of order.
//!
//! On such machines, all other bits of a record are mixed into its mark (`publish` in
//! `bpf/books.h`). A partly written record therefore has a wrong mark, except with a probability of
//! 2^-32. In the flight recorder's ring, only half of the bits of an entry's mark can be predicted.
//! Such an entry is therefore read twice, and both reads must agree.

use crate::record::{RingEntry, SpanRecord};

/// Must equal the constant with this name in `bpf/books.h`.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A record that contains a mark.
pub(crate) trait Sealed {
    /// Returns the record's mark without the bits that were mixed into it.
    fn mark(&self) -> u32;
}

/// Returns the value to mix into the mark of a record that consists of these words. The bits of the
/// mark itself must be 0.
fn mixed(words: &[u64]) -> u32 {
    let mix = |mixed: u64, word: &u64| mixed.wrapping_add(*word).wrapping_mul(MIXER);
    (words.iter().fold(0, mix) >> u32::BITS) as u32
}

/// Combines two numbers into a word, as they would be stored on a little-endian machine.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << u32::BITS | u64::from(low)
}

/// Combines four bytes into half a word, as they would be stored on a little-endian machine.
fn bytes(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

impl Sealed for SpanRecord {
    fn mark(&self) -> u32 {
        let [cpu_low, cpu_high] = self.cpu.to_le_bytes();
        let name = |half: usize| u64::from_le_bytes(std::array::from_fn(|i| self.comm[half + i]));
        self.seq
            ^ mixed(&[
                self.start,
                self.dur,
                self.self_ns.cast_unsigned(),
                self.detail,
                pair(0, self.tid),
                pair(self.tgid, bytes([self.kind, self.flags, cpu_low, cpu_high])),
                name(0),
                name(8),
            ])
    }
}

impl Sealed for RingEntry {
    fn mark(&self) -> u32 {
        self.seal
            ^ mixed(&[
                self.start,
                pair(self.dur, self.child),
                pair(self.detail, self.tid),
                pair(
                    0,
                    bytes([self.dur_high, self.child_high, self.kind, self.flags]),
                ),
            ])
    }
}

#[cfg(test)]
mod tests {
    use super::Sealed;
    use crate::record::{RingEntry, SpanRecord};

    /// Asserts that each change to `record` changes its mark.
    fn all_differ<T: Sealed + Copy>(record: T, changes: &[fn(&mut T)]) {
        for (at, change) in changes.iter().enumerate() {
            let mut changed = record;
            change(&mut changed);
            assert_ne!(changed.mark(), record.mark(), "change {at}");
        }
    }

    #[test]
    fn a_half_written_span_has_a_wrong_mark() {
        let record = SpanRecord {
            start: 5,
            tid: 7,
            seq: 3,
            ..SpanRecord::default()
        };
        all_differ(
            record,
            &[
                |record| record.start ^= 1,
                |record| record.start ^= 1 << 63,
                |record| record.dur ^= 1,
                |record| record.self_ns ^= 1,
                |record| record.detail ^= 1,
                |record| record.tid ^= 1,
                |record| record.tgid ^= 1,
                |record| record.kind ^= 1,
                |record| record.flags ^= 1,
                |record| record.cpu ^= 1,
                |record| record.comm[15] ^= 1,
            ],
        );
        let later = SpanRecord { seq: 4, ..record };
        assert_eq!(later.mark() ^ record.mark(), 3 ^ 4);
    }

    #[test]
    fn a_half_written_entry_has_a_wrong_mark() {
        let record = RingEntry {
            start: 5,
            tid: 7,
            seal: 1 << 16,
            ..RingEntry::default()
        };
        all_differ(
            record,
            &[
                |record| record.start ^= 1,
                |record| record.dur ^= 1,
                |record| record.child ^= 1,
                |record| record.child ^= 1 << 31,
                |record| record.detail ^= 1,
                |record| record.tid ^= 1,
                |record| record.dur_high ^= 1,
                |record| record.child_high ^= 1,
                |record| record.kind ^= 1,
                |record| record.flags ^= 1 << 7,
            ],
        );
    }
}
