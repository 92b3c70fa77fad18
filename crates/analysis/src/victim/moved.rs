//! Decides which CPU a thread waited for if its wait ended on a different CPU from the one it began
//! on.
//!
//! An idle CPU has an empty run queue. As long as the CPU on which the thread finally ran was idle,
//! the thread was therefore queued elsewhere: on the CPU where it ran before, or where its waker
//! had put it. After that, it may have been queued on either CPU, and counts as waiting for the one
//! where it finally ran.

use std::collections::VecDeque;

use ticktax_model::victim::DelayKind;
use ticktax_model::{Cpu, Nanos, Span};

use super::Victim;
use crate::timeline::{History, Piece, ThreadId};

/// A wait that ended on a new CPU, which was idle for part of the wait.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) thread: ThreadId,
    pub(super) kind: DelayKind,
    pub(super) span: Span,
    /// Time until which the thread was certainly queued on the old CPU.
    pub(super) until: Nanos,
    /// Activity of the new CPU, on which the thread then ran.
    pub(super) pieces: Vec<Piece>,
}

impl Moved {
    /// Returns the part of the wait that was spent on the old CPU.
    pub(super) fn before(&self) -> Span {
        let dur = self.until - self.span.start;
        Span {
            dur,
            self_time: dur,
            ..self.span
        }
    }

    /// Returns the activity of the new CPU after the part of the wait that was spent on the old
    /// CPU.
    pub(super) fn after(&self) -> impl Iterator<Item = Piece> + '_ {
        let later = self.pieces.iter().filter(|piece| piece.start >= self.until);
        later.copied()
    }
}

/// Holds back waits until the rows of the CPU where they were spent have arrived.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Waits whose old CPU has not been looked up yet, in order of arrival.
    waits: VecDeque<Moved>,
    /// Waits that need more rows of their old CPU, indexed by that CPU's slot.
    placed: Vec<VecDeque<Moved>>,
    /// Total number of waits in `waits` and `placed`.
    count: usize,
}

impl Moves {
    /// Longest delay with which rows from other CPUs arrive.
    const SETTLED: Nanos = Nanos::from_millis(200);

    pub(super) fn push(&mut self, wait: Moved) {
        self.count += 1;
        self.waits.push_back(wait);
    }

    /// Returns the next wait whose thread's earlier runs are all known by `now`.
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

    /// Holds back a wait that was spent on the CPU in `slot`.
    pub(super) fn keep(&mut self, slot: usize, wait: Moved) {
        if slot >= self.placed.len() {
            self.placed.resize_with(slot + 1, VecDeque::new);
        }
        self.count += 1;
        self.placed[slot].push_back(wait);
    }

    /// Returns the next wait on the CPU in `slot`, once that CPU's history covers it. The history
    /// is complete up to `known`.
    #[inline]
    pub(super) fn ready_on(&mut self, slot: usize, known: Nanos) -> Option<Moved> {
        if self.count == 0 {
            return None;
        }
        let placed = self.placed.get_mut(slot)?;
        let wait = placed.pop_front_if(|wait| wait.until <= known)?;
        self.count -= 1;
        Some(wait)
    }

    /// Returns the slots of all CPUs on which waits were spent.
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.placed.len()
    }
}

impl Victim {
    /// Finds the CPU on which a thread waited before it ran on another one, and holds the wait back
    /// until that CPU's rows have arrived.
    pub(super) fn find_place(&mut self, wait: Moved) {
        let life = self.threads.get(&wait.thread.tid);
        match life.and_then(|life| life.slot_before(wait.span.start)) {
            Some(slot) => self.moves.keep(slot, wait),
            // It is unknown on which CPU the thread ran before.
            None => self.waited(
                wait.thread,
                wait.kind,
                &wait.span,
                (None, true, &wait.pieces),
            ),
        }
    }

    /// Attributes a wait that was spent on the CPU in `slot` but ended on another CPU. `history` is
    /// the history of the CPU in `slot`.
    pub(super) fn moved(&mut self, wait: &Moved, slot: usize, history: Option<&History>) {
        let history = history.into_iter();
        let before = wait.before();
        let mut pieces: Vec<Piece> = history
            .flat_map(|history| history.ran_during(&before))
            .collect();
        pieces.extend(wait.after());
        let on = u32::try_from(slot).ok().map(Cpu);
        self.waited(wait.thread, wait.kind, &wait.span, (on, true, &pieces));
    }
}
