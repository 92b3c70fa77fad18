//! What came around bursts of losses, and when nothing was read meanwhile, in slots of time.
//!
//! A larger buffer loses less and is read for longer. So a course goes on after its burst until a receiver that had to
//! read the lost ones as well would have been done: what each of these takes is owed, and paid where nothing waits.

use std::collections::VecDeque;

use ticktax_model::Nanos;
use ticktax_model::packets::Course;

/// A slot is no shorter.
const SHORTEST: Nanos = Nanos::from_micros(50);

/// Datagrams that a slot holds at the rate that was asked for: as many less may be known of when one was sent.
const IN_A_SLOT: f64 = 4.0;

/// A course begins so many slots before the pause that filled the buffer, so that it begins with an empty one.
const BEFORE: i64 = 100;

/// Slots that are remembered: a burst is noticed once the buffer that it has filled was read.
const RECENT: usize = 1 << 16;

/// Slots of all courses, 2 bytes each, and pauses.
const KEPT: usize = 1 << 17;

/// What reading one takes before it is known.
const A_READ: Nanos = Nanos(1_000);

/// What was sent of late, and the courses that have been made of it.
#[derive(Debug)]
pub(super) struct Courses {
    slot: Nanos,
    /// What the slots count from.
    origin: Option<Nanos>,
    /// Datagrams sent in each of the last slots.
    recent: VecDeque<u16>,
    /// The number of the first of these.
    base: i64,
    /// The slot in which the course begins that has not ended.
    open: Option<i64>,
    /// The time that reading the lost ones would have taken, less what there was room for.
    owed: Nanos,
    /// Reads with others waiting, and what they took.
    reads: (i64, Nanos),
    kept: Vec<Course>,
    room: usize,
    is_one_missing: bool,
}

impl Courses {
    /// Of datagrams that come at this rate, or as fast as may be.
    pub(super) fn new(rate_hz: Option<f64>) -> Self {
        let some = rate_hz.map_or(Nanos::ZERO, |rate| {
            Nanos::from_secs(1).times(IN_A_SLOT / rate)
        });
        Self {
            slot: some.max(SHORTEST),
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

    /// One was sent at this time of the receiver's clock.
    pub(super) fn sent(&mut self, at: Nanos) {
        self.add(at, 1);
    }

    /// What comes next was sent later than at this time.
    pub(super) fn reach(&mut self, at: Nanos) {
        self.add(at, 0);
    }

    /// Reading one took so long while others waited.
    pub(super) fn read(&mut self, took: Nanos) {
        self.reads.0 += 1;
        self.reads.1 += took;
    }

    /// Nothing waited for so long.
    pub(super) fn idle(&mut self, time: Nanos) {
        if self.owed > Nanos::ZERO {
            self.owed -= time;
        }
    }

    /// So many were lost, for what began at this time.
    pub(super) fn lose(&mut self, count: u64, from: Nanos) {
        if self.open.is_none() {
            let first = self.place(from) - BEFORE;
            // What is no longer remembered is missing.
            self.is_one_missing |= first + BEFORE < self.base;
            self.open = Some(first.max(self.base));
        }
        self.owed += self.a_read().times(count as f64);
    }

    /// Whether a course has come to its end, once the burst has.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_some() && self.owed <= Nanos::ZERO
    }

    /// Ends the course that has not ended.
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
        // A time takes as much as eight counts.
        let size = sent.len() + 8 * pauses.len();
        if size > self.room {
            self.is_one_missing = true;
            return;
        }
        self.room -= size;
        self.kept.push(Course {
            start,
            slot: self.slot,
            sent,
            pauses,
            read: self.a_read(),
        });
    }

    /// One was sent at this time that never came: of courses that have ended, which may share slots.
    pub(super) fn never_came(&mut self, at: Nanos) {
        let begun = self.kept.partition_point(|course| course.start <= at);
        let mut is_last = begun == self.kept.len();
        for course in self.kept[..begun].iter_mut().rev() {
            let place = (at - course.start).0 / course.slot.0.max(1);
            let mut place = usize::try_from(place).unwrap_or(usize::MAX);
            if std::mem::take(&mut is_last) {
                // It ends when the last was sent, as far as was known then.
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

    /// There is no room to follow what comes.
    pub(super) fn give_up(&mut self) {
        self.is_one_missing = true;
    }

    /// All of them, and whether some are missing.
    pub(super) fn finish(self) -> (Vec<Course>, bool) {
        (self.kept, self.is_one_missing)
    }

    fn a_read(&self) -> Nanos {
        let (count, time) = self.reads;
        if count == 0 {
            return A_READ;
        }
        Nanos(time.0 / count).max(Nanos(1))
    }

    /// The slot of a time.
    fn place(&mut self, at: Nanos) -> i64 {
        let origin = *self.origin.get_or_insert(at);
        at.0.saturating_sub(origin.0).div_euclid(self.slot.0)
    }

    fn add(&mut self, at: Nanos, count: u64) {
        // What is older than all that is remembered is of its first slot.
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
