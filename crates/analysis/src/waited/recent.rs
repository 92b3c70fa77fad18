//! The last few waits of each thread.

use std::collections::VecDeque;

use ticktax_model::{Nanos, Span};

use crate::fast_map::FastMap;

/// Maximum number of last waits of a thread that are kept. The tracer merges rows in steps of
/// 50 ms, so that this many waits can arrive between a wait and its edge.
const PER_THREAD: usize = 512;
/// Number of last waits of a thread that are kept however old they are, if there is room.
const KEPT: usize = 4;
/// Age at which the other waits of a thread are forgotten.
const OLD: Nanos = Nanos::from_secs(1);

/// The last waits of all threads.
#[derive(Debug)]
pub(super) struct Recent {
    threads: FastMap<i32, VecDeque<Span>>,
    /// Number of waits in `threads`.
    count: usize,
    /// Maximum of `count`.
    most: usize,
    /// Start of the first wait that was added.
    first: Nanos,
    /// Latest start of a wait that was forgotten.
    forgotten: Option<Nanos>,
}

impl Recent {
    /// Creates an empty list of at most `most` waits.
    pub(super) fn new(most: usize) -> Self {
        Self {
            threads: FastMap::default(),
            count: 0,
            most,
            first: Nanos(i64::MAX),
            forgotten: None,
        }
    }

    /// Adds a thread's next wait.
    pub(super) fn add(&mut self, tid: i32, wait: &Span) {
        if self.count >= self.most {
            self.make_room(wait.end());
        }
        self.first = self.first.min(wait.start);
        let waits = self.threads.entry(tid).or_default();
        let is_old = |old: &Span| old.end() + OLD < wait.end();
        while waits.len() >= PER_THREAD || waits.len() >= KEPT && waits.front().is_some_and(is_old)
        {
            let old = waits.pop_front();
            self.forgotten = self.forgotten.max(old.map(|old| old.start));
            self.count -= 1;
        }
        waits.push_back(*wait);
        self.count += 1;
    }

    /// Returns the wait of a thread that started at `start`.
    pub(super) fn get(&self, tid: i32, start: Nanos) -> Option<Span> {
        let mut waits = self.threads.get(&tid)?.iter();
        waits.find(|wait| wait.start == start).copied()
    }

    /// Returns whether a wait that started at `start` may have been forgotten.
    pub(super) fn may_have_forgotten(&self, start: Nanos) -> bool {
        start >= self.first && Some(start) <= self.forgotten
    }

    /// Removes at least half of the waits: those that are least likely to be needed.
    fn make_room(&mut self, now: Nanos) {
        let is_old = |wait: &Span| wait.end() + OLD < now;
        self.keep(|waits, nth| !is_old(&waits[nth]) || nth + KEPT >= waits.len());
        if self.count > self.most / 2 {
            self.keep(|waits, nth| nth + KEPT >= waits.len());
        }
        if self.count > self.most / 2 {
            self.keep(|waits, _| waits.back().is_some_and(|last| !is_old(last)));
        }
        if self.count > self.most / 2 {
            self.keep(|_, _| false);
        }
    }

    /// Removes all waits but those that `is_kept` selects, given a thread's waits and an index.
    fn keep(&mut self, is_kept: impl Fn(&VecDeque<Span>, usize) -> bool) {
        let forgotten = &mut self.forgotten;
        self.threads.retain(|_, waits| {
            let (mut kept, all) = (VecDeque::new(), std::mem::take(waits));
            for (nth, wait) in all.iter().enumerate() {
                if is_kept(&all, nth) {
                    kept.push_back(*wait);
                } else {
                    *forgotten = (*forgotten).max(Some(wait.start));
                }
            }
            *waits = kept;
            !waits.is_empty()
        });
        self.count = self.threads.values().map(VecDeque::len).sum();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        assert_eq!(
            self.count,
            self.threads.values().map(VecDeque::len).sum::<usize>()
        );
        self.count
    }
}
