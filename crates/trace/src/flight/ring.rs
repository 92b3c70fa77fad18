//! Reads a ring while the kernel overwrites it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::flight::event::Event;
use crate::flight::packed::Packed;
use crate::tracer::Tracer;

/// Number of records to copy between two checks of the writer's position.
const BATCH: usize = 256;

/// Number of extra records to read before the first wanted one. Because of interrupts, a record
/// that was claimed earlier may have ended later.
const BEFORE: u64 = 64;

/// Number of records at the tail of a ring that are not worth reading, because they will be
/// overwritten soon.
const ABOUT_TO_GO: u64 = 64;

/// Events read from one CPU's ring.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Events in the order of their numbers. Results of [`Tracer::look`] share them with this pool.
    pub(super) events: Arc<Packed>,
    /// Number of the first record.
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
    /// Number of the oldest record worth reading, given that `head` records have been claimed.
    fn oldest(&self, head: u64) -> u64 {
        let len = self.sizes.ring_len() as u64;
        head.saturating_sub(len - ABOUT_TO_GO)
    }

    /// Record `number` in a CPU's ring. `None` if the record is not completely written yet or has
    /// been overwritten.
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

    /// Time that a CPU's ring reaches back from `now`, in ns. `None` if the ring has never been
    /// full.
    pub(super) fn reach(&self, cpu: usize, now: u64) -> Option<u64> {
        let head = self.states.head(cpu);
        if head < self.sizes.ring_len() as u64 {
            return None;
        }
        let oldest = self.take_whole(cpu, self.oldest(head))?;
        Some(now.saturating_sub(oldest.end()))
    }

    /// Creates a pool that starts before the CPU's first record to end after `time`.
    pub(super) fn pool_from(&self, cpu: usize, time: u64) -> Pool {
        let head = self.states.head(cpu);
        let oldest = self.oldest(head);
        let (mut low, mut high) = (oldest, head);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.take_whole(cpu, middle) {
                Some(event) if event.end() > time => high = middle,
                // A record that is overwritten or not written yet says nothing, so continue with
                // later ones.
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

    /// Adds the records written since the last call to `pool`, until the pool takes `bytes`.
    /// Returns whether the end of the ring was reached.
    ///
    /// The writer claims a record's number before it writes the record. A copied record is
    /// therefore intact if its slot had not been claimed again by the time the copy was complete.
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

    /// Skips to the oldest record that is still there.
    fn skip_gone(&self, pool: &mut Pool, head: u64) {
        let oldest = self.oldest(head);
        if pool.next < oldest {
            let gone = oldest - pool.next;
            pool.next = oldest;
            count_gone(pool, gone);
        }
    }
}

/// Counts overwritten records. Records before the pool's first one do not count as missed: they
/// only mean that the ring reaches back less far.
fn count_gone(pool: &mut Pool, gone: u64) {
    if pool.events.is_empty() {
        pool.first += gone;
    } else {
        pool.missed += gone;
    }
}
