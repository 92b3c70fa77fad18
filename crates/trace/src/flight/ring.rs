//! Reads a ring while the BPF programs keep overwriting it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::flight::event::Event;
use crate::flight::packed::Packed;
use crate::tracer::Tracer;

/// Number of records to copy between two checks of the writer's position.
const BATCH: usize = 256;

/// Number of extra records to read before the first one that is needed. If an interrupt arrives
/// while a record is being written, a record that was claimed earlier may have ended later.
const BEFORE: u64 = 64;

/// Number of records to skip at the old end of a ring, because they will soon be overwritten.
const ABOUT_TO_GO: u64 = 64;

/// Events read from one CPU's ring.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Events in the order of their record numbers. Results of [`Tracer::look`] share them with
    /// this pool.
    pub(super) events: Arc<Packed>,
    /// Number of the pool's first record.
    pub(super) first: u64,
    /// Number of the next record to read.
    pub(super) next: u64,
    /// Number of records after the first one that were overwritten before they could be read.
    pub(super) missed: u64,
    /// Latest end of any stretch read so far, in ns.
    pub(super) stretched: u64,
    /// Whether the memory limit was reached.
    pub(super) is_full: bool,
}

impl Tracer {
    /// Returns the number of the oldest record that is worth reading. `head` is the number of
    /// records claimed so far.
    fn oldest(&self, head: u64) -> u64 {
        let len = self.sizes.ring_len() as u64;
        head.saturating_sub(len - ABOUT_TO_GO)
    }

    /// Returns record `number` from a CPU's ring. Returns `None` if the record is not completely
    /// written yet, or has been overwritten.
    fn take(&self, cpu: usize, number: u64) -> Option<Event> {
        let len = self.sizes.ring_len();
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let (place, round) = (
            number as usize & (len - 1),
            (number >> self.sizes.ring_order) as u16,
        );
        let entry = self
            .entries
            .take(cpu * len + place, round.wrapping_add(1), self.sealed)?;
        Some(Event::from(&entry))
    }

    /// Does the same as [`Tracer::take`], but also returns `None` if the record was overwritten
    /// while it was being read.
    fn take_whole(&self, cpu: usize, number: u64) -> Option<Event> {
        let event = self.take(cpu, number)?;
        fence(Ordering::Acquire);
        let gone = self.states.head(cpu) > number + self.sizes.ring_len() as u64;
        (!gone).then_some(event)
    }

    /// Returns how far a CPU's ring reaches back from `now`, in ns. Returns `None` if the ring has
    /// never been full.
    pub(super) fn reach(&self, cpu: usize, now: u64) -> Option<u64> {
        let head = self.states.head(cpu);
        if head < self.sizes.ring_len() as u64 {
            return None;
        }
        let oldest = self.take_whole(cpu, self.oldest(head))?;
        Some(now.saturating_sub(oldest.end()))
    }

    /// Creates an empty pool. Reading will start a few records before the CPU's first record that
    /// ended after `time`.
    pub(super) fn pool_from(&self, cpu: usize, time: u64) -> Pool {
        let head = self.states.head(cpu);
        let oldest = self.oldest(head);
        let (mut low, mut high) = (oldest, head);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.take_whole(cpu, middle) {
                Some(event) if event.end() > time => high = middle,
                // If a record has been overwritten or is not written yet, its end is unknown.
                // Continue with later records.
                _ => low = middle + 1,
            }
        }
        let first = low.saturating_sub(BEFORE).max(oldest);
        Pool {
            first,
            next: first,
            ..Pool::default()
        }
    }

    /// Adds the records written since the last call to `pool`, until the pool takes `bytes` of
    /// memory. Returns whether the end of the ring was reached.
    ///
    /// The BPF programs claim a record's number before they write the record. A copy is therefore
    /// intact if its slot had not been claimed again by the time the copy was complete.
    pub(super) fn fill(&self, cpu: usize, pool: &mut Pool, bytes: usize) -> bool {
        let len = self.sizes.ring_len() as u64;
        let head = self.states.head(cpu);
        self.skip_gone(pool, head);
        let mut batch = Vec::with_capacity(BATCH);
        while pool.next < head {
            if pool.events.bytes() >= bytes {
                pool.is_full = true;
                return false;
            }
            let from = pool.next;
            let mut pending = false;
            while pool.next < head && batch.len() < BATCH {
                let Some(event) = self.take(cpu, pool.next) else {
                    pending = true;
                    break;
                };
                batch.push(event);
                pool.next += 1;
            }
            fence(Ordering::Acquire);
            let now = self.states.head(cpu);
            let gone = now.saturating_sub(len);
            let torn = usize::try_from(gone.saturating_sub(from)).unwrap_or(usize::MAX);
            let torn = torn.min(batch.len());
            count_gone(pool, torn as u64);
            let events = Arc::make_mut(&mut pool.events);
            for event in batch.drain(..).skip(torn) {
                if event.is_stretch() {
                    pool.stretched = pool.stretched.max(event.end());
                }
                events.push(&event);
            }
            if pending {
                if gone <= pool.next {
                    return false;
                }
                self.skip_gone(pool, now);
            }
        }
        true
    }

    /// Skips the records that have been overwritten.
    fn skip_gone(&self, pool: &mut Pool, head: u64) {
        let oldest = self.oldest(head);
        if pool.next < oldest {
            let gone = oldest - pool.next;
            pool.next = oldest;
            count_gone(pool, gone);
        }
    }
}

/// Counts records that were overwritten. Records before the pool's first record are not counted as
/// missed, because they only mean that the ring does not reach back as far.
fn count_gone(pool: &mut Pool, gone: u64) {
    if pool.events.is_empty() {
        pool.first += gone;
    } else {
        pool.missed += gone;
    }
}
