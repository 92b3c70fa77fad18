//! The course of each burst of losses: how many datagrams were sent in each time slot, and when the
//! receiver paused.
//!
//! From a course, a simulation computes how many datagrams a larger buffer would have saved. With a
//! larger buffer, fewer datagrams are lost, but the receiver has more of them to read. A course
//! therefore continues after its burst, until a receiver that also had to read the lost datagrams
//! would have caught up. To find that point, the log keeps a debt: it adds the time that reading
//! each lost datagram would have taken, and subtracts the time in which no datagram is waiting.

use std::collections::VecDeque;

use ticktax_model::Nanos;
use ticktax_model::packets::BurstWindow;

/// Minimum length of a slot.
const SHORTEST: Nanos = Nanos::from_micros(50);

/// Number of datagrams per slot at the requested rate. With more of them, times would be less
/// precise.
const IN_A_SLOT: f64 = 4.0;

/// Number of slots from the start of the course to the start of the pause that filled the buffer.
/// They ensure that the buffer is empty when the course starts.
const BEFORE: i64 = 100;

/// Number of recent slots to remember. Many are needed because the receiver notices a burst of
/// losses only after it has read all the datagrams in the full buffer.
const RECENT: usize = 1 << 16;

/// Maximum total number of slots in all courses. A slot takes 2 bytes. Pauses share this memory.
const KEPT: usize = 1 << 17;

/// Duration of a read to assume until one has been measured.
const DEFAULT_READ_TIME: Nanos = Nanos(1_000);

/// The datagrams sent recently, and the courses recorded so far.
#[derive(Debug)]
pub(super) struct Courses {
    slot: Nanos,
    /// When slot 0 starts, or `None` until the first datagram is recorded.
    origin: Option<Nanos>,
    /// Number of datagrams sent in each recent slot.
    recent: VecDeque<u16>,
    /// Index of the first slot in `recent`.
    base: i64,
    /// First slot of the course in progress, if any.
    open: Option<i64>,
    /// Time that reading the lost datagrams would have taken, minus the time since their loss in
    /// which no datagram was waiting.
    owed: Nanos,
    /// Number and total duration of the reads that took place while more datagrams were waiting.
    reads: (i64, Nanos),
    kept: Vec<BurstWindow>,
    room: usize,
    is_one_missing: bool,
}

impl Courses {
    /// Creates an empty record. `rate_hz` is the number of datagrams per second, or `None` for full
    /// speed.
    pub(super) fn new(rate_hz: Option<f64>) -> Self {
        let slot = rate_hz.map_or(Nanos::ZERO, |rate| {
            Nanos::from_secs(1).times(IN_A_SLOT / rate)
        });
        Self {
            slot: slot.max(SHORTEST),
            origin: None,
            recent: VecDeque::with_capacity(RECENT),
            base: 0,
            open: None,
            owed: Nanos::ZERO,
            reads: (0, Nanos::ZERO),
            kept: Vec::new(),
            room: KEPT,
            is_one_missing: false,
        }
    }

    /// Records that a datagram was sent at `at`, on the receiver's clock.
    pub(super) fn sent(&mut self, at: Nanos) {
        self.add(at, 1);
    }

    /// Extends the record to the time `at`, after which all datagrams recorded later were sent.
    pub(super) fn reach(&mut self, at: Nanos) {
        self.add(at, 0);
    }

    /// Records how long a read took while more datagrams were waiting.
    pub(super) fn read(&mut self, took: Nanos) {
        self.reads.0 += 1;
        self.reads.1 += took;
    }

    /// Records a period in which no datagram was waiting.
    pub(super) fn idle(&mut self, time: Nanos) {
        if self.owed > Nanos::ZERO {
            self.owed -= time;
        }
    }

    /// Records that `count` datagrams were lost because of a pause that started at `from`.
    pub(super) fn lose(&mut self, count: u64, from: Nanos) {
        if self.open.is_none() {
            let first = self.place(from) - BEFORE;
            // The course is incomplete if the slots at the start of the pause have been forgotten.
            self.is_one_missing |= first + BEFORE < self.base;
            self.open = Some(first.max(self.base));
        }
        self.owed += self.read_time().times(count as f64);
    }

    /// Returns whether a course is in progress that can end as soon as its burst is over.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_some() && self.owed <= Nanos::ZERO
    }

    /// Ends the course in progress, if any. `pauses` yields the start and end of each of the
    /// receiver's recent pauses.
    pub(super) fn end(&mut self, pauses: impl Iterator<Item = (Nanos, Nanos)>) {
        let Some(first) = self.open.take() else {
            return;
        };
        self.owed = Nanos::ZERO;
        let start = self.origin.unwrap_or_default() + Nanos(first.saturating_mul(self.slot.0));
        let skipped = usize::try_from(first - self.base).ok();
        let Some(skipped) = skipped.filter(|_| !self.is_one_missing) else {
            self.is_one_missing = true;
            return;
        };
        let sent: Vec<u16> = self.recent.iter().skip(skipped).copied().collect();
        let pauses: Vec<(Nanos, Nanos)> = pauses.filter(|pause| pause.1 > start).collect();
        // A pause takes as much memory as eight slots.
        let size = sent.len() + 8 * pauses.len();
        if size > self.room {
            self.is_one_missing = true;
            return;
        }
        self.room -= size;
        self.kept.push(BurstWindow {
            start,
            slot: self.slot,
            sent,
            pauses,
            read: self.read_time(),
        });
    }

    /// Adds a lost datagram sent at `at` to all finished courses that cover that time. There can be
    /// several, because courses can overlap.
    pub(super) fn never_came(&mut self, at: Nanos) {
        let begun = self.kept.partition_point(|course| course.start <= at);
        let mut is_last = begun == self.kept.len();
        for course in self.kept[..begun].iter_mut().rev() {
            let place = (at - course.start).0 / course.slot.0.max(1);
            let mut place = usize::try_from(place).unwrap_or(usize::MAX);
            if std::mem::take(&mut is_last) {
                // The last course ended with the last datagram whose send time was known at that
                // point. Losses after that datagram count in the course's last slot.
                place = place.min(course.sent.len().saturating_sub(1));
            }
            let Some(slot) = course.sent.get_mut(place) else {
                return;
            };
            match slot.checked_add(1) {
                Some(sum) => *slot = sum,
                None => self.is_one_missing = true,
            }
        }
    }

    /// Records that some losses are missing from the courses, because the log is full.
    pub(super) fn give_up(&mut self) {
        self.is_one_missing = true;
    }

    /// Returns all courses, and whether any are missing or incomplete.
    pub(super) fn finish(self) -> (Vec<BurstWindow>, bool) {
        (self.kept, self.is_one_missing)
    }

    fn read_time(&self) -> Nanos {
        let (count, time) = self.reads;
        if count == 0 {
            return DEFAULT_READ_TIME;
        }
        Nanos(time.0 / count).max(Nanos(1))
    }

    /// Returns the index of the slot that contains the time `at`.
    fn place(&mut self, at: Nanos) -> i64 {
        let origin = *self.origin.get_or_insert(at);
        at.0.saturating_sub(origin.0).div_euclid(self.slot.0)
    }

    fn add(&mut self, at: Nanos, count: u64) {
        // A datagram sent before the first remembered slot counts in that slot.
        let place = self.place(at).max(self.base);
        let end = self.base + i64::try_from(self.recent.len()).unwrap_or(i64::MAX);
        if place - end >= i64::try_from(RECENT).unwrap_or(i64::MAX) {
            self.recent.clear();
            self.recent.push_back(0);
            self.base = place;
        }
        while self.base + i64::try_from(self.recent.len()).unwrap_or(i64::MAX) <= place {
            if self.recent.len() >= RECENT {
                self.recent.pop_front();
                self.base += 1;
            }
            self.recent.push_back(0);
        }
        let place = usize::try_from(place - self.base).unwrap_or(0);
        if let Some(slot) = self.recent.get_mut(place) {
            let sum = u64::from(*slot).saturating_add(count);
            *slot = u16::try_from(sum).unwrap_or(u16::MAX);
            self.is_one_missing |= sum > u64::from(u16::MAX) && self.open.is_some();
        }
    }
}
