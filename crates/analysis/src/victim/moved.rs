//! Waits that ended on another CPU than they began on: where the thread waited, and behind whom.
//!
//! A CPU that idles has nobody in its queue. So as long as the CPU that the thread then ran on still
//! idled, the thread was in the queue of the one that it had run on before, or had been put into by its
//! waker; from then on it may have been in either, and counts as waiting where it ran in the end.

use std::collections::VecDeque;

use ticktax_model::victim::DelayKind;
use ticktax_model::{Nanos, Span};

use crate::timeline::{Piece, ThreadId};

/// A wait that ended on another CPU, which idled meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) thread: ThreadId,
    pub(super) kind: DelayKind,
    pub(super) span: Span,
    /// Until when the thread was still where it came from.
    pub(super) until: Nanos,
    /// What the CPU did that it then ran on.
    pub(super) pieces: Vec<Piece>,
}

impl Moved {
    /// The part of the wait that was spent where it came from.
    pub(super) fn before(&self) -> Span {
        let dur = self.until - self.span.start;
        Span {
            dur,
            self_time: dur,
            ..self.span
        }
    }

    /// What the CPU did after that, on which it then ran.
    pub(super) fn after(&self) -> impl Iterator<Item = Piece> + '_ {
        let later = self.pieces.iter().filter(|piece| piece.start >= self.until);
        later.copied()
    }
}

/// Waits until the rows of the CPU that they were spent on have come.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// In the order in which they came.
    waits: VecDeque<Moved>,
    /// By the place of the CPU that they were spent on.
    ready: Vec<VecDeque<Moved>>,
    count: usize,
}

impl Moves {
    /// By so much the rows of another CPU may come late.
    const SETTLED: Nanos = Nanos::from_millis(200);

    /// Takes a wait.
    pub(super) fn push(&mut self, wait: Moved) {
        self.count += 1;
        self.waits.push_back(wait);
    }

    /// The next wait of which all rows have come by `now`, and that has no place yet.
    #[inline]
    pub(super) fn settled(&mut self, now: Nanos) -> Option<Moved> {
        if self.waits.is_empty() {
            return None;
        }
        let settled = |wait: &mut Moved| wait.span.end() + Self::SETTLED < now;
        let wait = self.waits.pop_front_if(settled)?;
        self.count -= 1;
        Some(wait)
    }

    /// Keeps a wait for the CPU in `slot`, on which it was spent.
    pub(super) fn keep(&mut self, slot: usize, wait: Moved) {
        if slot >= self.ready.len() {
            self.ready.resize_with(slot + 1, VecDeque::new);
        }
        self.count += 1;
        self.ready[slot].push_back(wait);
    }

    /// The next wait that was spent on the CPU in `slot`, of which it is known by now who had it until `known`.
    #[inline]
    pub(super) fn of(&mut self, slot: usize, known: Nanos) -> Option<Moved> {
        if self.count == 0 {
            return None;
        }
        let ready = self.ready.get_mut(slot)?;
        let wait = ready.pop_front_if(|wait| wait.until <= known)?;
        self.count -= 1;
        Some(wait)
    }

    /// The places of all CPUs that waits were spent on.
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.ready.len()
    }
}
