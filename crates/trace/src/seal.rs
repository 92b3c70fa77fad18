//! Records whose marks tell whether they are whole, for CPUs that may see each other's stores in another order than they were
//! made in.
//!
//! There a record's mark has all its other bits mixed into it (`publish` in `bpf/books.h`), so that a half-written record has the wrong
//! one, except by a chance of 1 in 2^32. Of a flight recorder's entry only half of the mark is known beforehand; it is read twice, and has to be
//! the same.

use crate::record::{RingEntry, SpanRecord};

/// As in `bpf/books.h`.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A record with a mark.
pub(crate) trait Sealed {
    /// What its mark would be, were nothing mixed into it.
    fn mark(&self) -> u32;
}

/// What is mixed into the mark of a record of these words, in which its own bits are 0.
fn mixed(words: &[u64]) -> u32 {
    let mix = |mixed: u64, word: &u64| mixed.wrapping_add(*word).wrapping_mul(MIXER);
    (words.iter().fold(0, mix) >> u32::BITS) as u32
}

/// Two numbers in a word, as they lie on a machine with the lowest byte first.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << u32::BITS | u64::from(low)
}

/// Four bytes in half a word, likewise.
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

    /// Each change of a record changes its mark.
    fn all_differ<T: Sealed + Copy>(record: T, changes: &[fn(&mut T)]) {
        for (at, change) in changes.iter().enumerate() {
            let mut other = record;
            change(&mut other);
            assert_ne!(other.mark(), record.mark(), "change {at}");
        }
    }

    #[test]
    fn half_a_span_has_another_mark() {
        let record = SpanRecord {
            start: 5,
            tid: 7,
            seq: 3,
            ..SpanRecord::default()
        };
        all_differ(
            record,
            &[
                |it| it.start ^= 1,
                |it| it.start ^= 1 << 63,
                |it| it.dur ^= 1,
                |it| it.self_ns ^= 1,
                |it| it.detail ^= 1,
                |it| it.tid ^= 1,
                |it| it.tgid ^= 1,
                |it| it.kind ^= 1,
                |it| it.flags ^= 1,
                |it| it.cpu ^= 1,
                |it| it.comm[15] ^= 1,
            ],
        );
        let later = SpanRecord { seq: 4, ..record };
        assert_eq!(later.mark() ^ record.mark(), 3 ^ 4);
    }

    #[test]
    fn half_an_entry_has_another_mark() {
        let record = RingEntry {
            start: 5,
            tid: 7,
            seal: 1 << 16,
            ..RingEntry::default()
        };
        all_differ(
            record,
            &[
                |it| it.start ^= 1,
                |it| it.dur ^= 1,
                |it| it.child ^= 1,
                |it| it.child ^= 1 << 31,
                |it| it.detail ^= 1,
                |it| it.tid ^= 1,
                |it| it.dur_high ^= 1,
                |it| it.child_high ^= 1,
                |it| it.kind ^= 1,
                |it| it.flags ^= 1 << 7,
            ],
        );
    }
}
