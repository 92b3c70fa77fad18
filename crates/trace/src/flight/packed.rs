//! Compact storage for events. At half a million events per second, the seconds around a trigger
//! contain millions of events.
//!
//! Fields that many events share (a [`Common`]) are stored once and referred to by number. The rest
//! of an event is four numbers, each stored in as many bytes as it needs. Two of them, the end time
//! and the tracepoint hits, are stored as differences from the previous event. The other two are
//! the length, and the part of it that is not self time. An event takes 8 to 12 bytes, compared
//! with 32 in the ring.

use std::collections::HashMap;

use crate::flight::event::Event;
use crate::record::flag;

/// Number of bytes to allocate at a time.
const CHUNK: usize = 1 << 14;

/// Upper limit for an event's size in bytes. An event consists of five numbers.
const LONGEST: usize = 64;

/// Memory that each [`Common`] takes, in bytes: one entry in the list and one in the hash table.
const COMMON: usize = 96;

/// Number of slots in the cache of recent [`Common`]s, which must be a power of two.
const RECENT: usize = 256;

/// The hit count to start from. It keeps the count positive even if the first difference is
/// negative.
const HITS: u64 = 1 << 32;

/// Fields that many events share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Common {
    pub(super) detail: u32,
    pub(super) tid: u32,
    /// Effect of an edge. 0 if the effect is on a thread, whose ID is stored with the event.
    pub(super) effect: u32,
    pub(super) kind: u8,
    pub(super) left: u8,
    pub(super) flags: u8,
}

impl From<&Event> for Common {
    fn from(event: &Event) -> Self {
        let has_effect = event.flags & (flag::QUEUED | flag::RAISED) != 0;
        Self {
            detail: event.detail,
            tid: event.tid,
            effect: u32::try_from(event.dur)
                .ok()
                .filter(|_| has_effect)
                .unwrap_or_default(),
            kind: event.kind,
            left: event.left,
            flags: event.flags,
        }
    }
}

impl Common {
    /// Returns the slot of this [`Common`] in the cache of recent ones.
    fn place(&self) -> usize {
        let kind = u32::from(self.kind) << 4 ^ u32::from(self.left) ^ u32::from(self.flags) << 2;
        let mixed =
            (self.tid ^ kind ^ self.detail ^ self.effect.rotate_left(8)).wrapping_mul(0x9e37_79b1);
        (mixed >> 24) as usize % RECENT
    }
}

/// The events of one CPU, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    /// Chunks of [`CHUNK`] bytes. No event spans two chunks.
    chunks: Vec<Vec<u8>>,
    commons: Vec<Common>,
    numbers: HashMap<Common, u32>,
    /// Cache of the numbers of recent [`Common`]s, indexed by [`Common::place`]. Most look-ups hit
    /// it.
    recent: Vec<u32>,
    len: usize,
    last_end: u64,
    last_hits: u64,
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory that the events take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK + self.commons.len() * COMMON
    }

    /// Returns the shared fields, indexed by `Event::common`.
    pub(super) fn commons(&self) -> &[Common] {
        &self.commons
    }

    /// Returns the end of the last event.
    pub(super) fn last_end(&self) -> u64 {
        self.last_end
    }

    /// Returns the number of tracepoint hits up to the last event.
    pub(super) fn last_hits(&self) -> u64 {
        self.last_hits.wrapping_add(HITS)
    }

    pub(super) fn push(&mut self, event: &Event) {
        let common = self.number_of(Common::from(event));
        let end = event.end();
        let later = end.wrapping_sub(self.last_end).cast_signed();
        // Only the low 16 bits of the hit count are known. The difference can be negative: if an
        // interrupt arrives while a record is being written, that record has a higher count than
        // the next one.
        let hits = hits_between(self.last_hits, event.hits);
        let mut chunk = match self.chunks.pop() {
            Some(chunk) if chunk.len() + LONGEST <= CHUNK => chunk,
            full => {
                self.chunks.extend(full);
                Vec::with_capacity(CHUNK)
            }
        };
        put(&mut chunk, common.into());
        put(&mut chunk, unsigned(later));
        put(&mut chunk, unsigned(hits));
        if !event.is_edge() {
            let child = event.dur.cast_signed().wrapping_sub(event.self_ns);
            put(&mut chunk, event.dur);
            put(&mut chunk, unsigned(child));
        } else if event.flags & flag::WOKE != 0 {
            put(&mut chunk, event.dur);
        }
        self.chunks.push(chunk);
        self.len += 1;
        self.last_end = end;
        self.last_hits = self.last_hits.wrapping_add_signed(hits);
    }

    fn number_of(&mut self, common: Common) -> u32 {
        if self.recent.is_empty() {
            self.recent = vec![0; RECENT];
        }
        let recent = &mut self.recent[common.place()];
        if self.commons.get(*recent as usize) == Some(&common) {
            return *recent;
        }
        let next = u32::try_from(self.commons.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(common).or_insert(next);
        if number == next {
            self.commons.push(common);
        }
        *recent = number;
        number
    }

    /// Iterates over all events, with full hit counts.
    pub(super) fn iter(&self) -> Iter<'_> {
        Iter {
            packed: self,
            chunks: self.chunks.iter(),
            bytes: &[],
            end: 0,
            hits: 0,
        }
    }

    /// Frees memory that is needed only for adding events.
    pub(super) fn finish(&mut self) {
        self.numbers = HashMap::new();
        self.recent = Vec::new();
    }
}

/// Returns the difference between two hit counts. Only the low 16 bits of `to` are known.
fn hits_between(from: u64, to: u64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the low bits are compared"
    )]
    let low = (to as u16).wrapping_sub(from as u16).cast_signed();
    low.into()
}

/// An iterator over the events in a [`Packed`].
#[derive(Clone, Debug)]
pub(super) struct Iter<'a> {
    packed: &'a Packed,
    chunks: std::slice::Iter<'a, Vec<u8>>,
    bytes: &'a [u8],
    end: u64,
    hits: u64,
}

impl Iterator for Iter<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while self.bytes.is_empty() {
            self.bytes = self.chunks.next()?;
        }
        let number = u32::try_from(take(&mut self.bytes)).ok()?;
        let common = self.packed.commons.get(number as usize)?;
        self.end = self.end.wrapping_add_signed(signed(take(&mut self.bytes)));
        self.hits = self.hits.wrapping_add_signed(signed(take(&mut self.bytes)));
        let mut event = Event {
            start: self.end,
            dur: common.effect.into(),
            self_ns: 0,
            hits: self.hits.wrapping_add(HITS),
            detail: common.detail,
            tid: common.tid,
            common: number,
            kind: common.kind,
            left: common.left,
            flags: common.flags,
        };
        if !event.is_edge() {
            event.dur = take(&mut self.bytes);
            event.start = self.end.wrapping_sub(event.dur);
            let child = signed(take(&mut self.bytes));
            event.self_ns = event.dur.cast_signed().wrapping_sub(child);
        } else if event.flags & flag::WOKE != 0 {
            event.dur = take(&mut self.bytes);
        }
        Some(event)
    }
}

/// Encodes a number in zigzag form: numbers near 0, whether positive or negative, become small
/// unsigned ones.
fn unsigned(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// Reverses [`unsigned`].
fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Appends a number in LEB128 form: seven bits per byte, lowest bits first. If a byte's top bit is
/// set, more bytes follow.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Reads a number that [`put`] wrote, and removes it from `bytes`.
fn take(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0u64, 0u32);
    while let Some((&first, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(first & 0x7f).wrapping_shl(shift);
        shift += 7;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CHUNK, Packed};
    use crate::flight::event::{EDGES, Event};
    use crate::record::{flag, kind};

    fn event() -> impl Strategy<Value = Event> {
        let flags = [0, flag::WOKE, flag::QUEUED, flag::RAISED, flag::FUNCTION];
        let flags = prop::sample::select(flags.to_vec());
        let times = (any::<u64>(), any::<u64>(), any::<i64>());
        (times, 0u64..5, 0u32..3, any::<u32>(), flags).prop_map(
            |((start, dur, self_ns), hits, tid, detail, flags)| {
                let is_edge = flags & EDGES != 0;
                Event {
                    start,
                    dur: if is_edge { dur & 0xffff_ffff } else { dur },
                    self_ns: if is_edge { 0 } else { self_ns },
                    hits,
                    detail,
                    tid,
                    common: 0,
                    kind: kind::TASK,
                    left: 3,
                    flags,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn any_events_survive_packing(mut events in prop::collection::vec(event(), 0..200)) {
            let mut packed = Packed::default();
            // Hit counts only increase, and only their low bits are recorded.
            let mut hits = 65_000;
            for event in &mut events {
                hits += event.hits * 10_000 % 30_000;
                event.hits = hits & 0xffff;
                packed.push(event);
            }
            prop_assert_eq!(packed.len(), events.len());
            let unpacked: Vec<Event> = packed.iter().collect();
            prop_assert_eq!(unpacked.len(), events.len());
            for (unpacked, event) in unpacked.iter().zip(&events) {
                prop_assert_eq!(unpacked.hits & 0xffff, event.hits);
                let same = Event { common: 0, hits: event.hits, ..*unpacked };
                prop_assert_eq!(&same, event);
            }
            for pair in unpacked.windows(2) {
                prop_assert!(pair[0].hits <= pair[1].hits);
            }
        }
    }

    #[test]
    fn an_event_takes_at_most_a_dozen_bytes() {
        let mut packed = Packed::default();
        for number in 0..100_000u64 {
            packed.push(&Event {
                start: 1_000_000_000_000 + number * 1_000,
                dur: 900,
                self_ns: 800,
                hits: number * 2,
                detail: 0x8100_0000,
                tid: 4_000_000 + u32::try_from(number % 50).unwrap(),
                kind: kind::TASK,
                ..Event::default()
            });
        }
        assert!(packed.bytes() <= 100_000 * 12 + CHUNK, "{}", packed.bytes());
        let last = packed.iter().last().unwrap();
        assert_eq!(
            (packed.last_end(), last.end()),
            (last.end(), 1_000_099_999_900)
        );
        assert_eq!(last.hits - packed.iter().next().unwrap().hits, 199_998);
    }
}
