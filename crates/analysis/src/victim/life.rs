//! One thread's life: its accounts, and whether they tile it.

use std::collections::{BTreeMap, VecDeque};

use ticktax_model::victim::{OffCpuReason, ThreadState};
use ticktax_model::{Nanos, SourceId, Span};

use super::worst::{Candidate, Worst};
use crate::ledger::tally::Tally;

/// What was seen of one thread.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) pid: i32,
    pub(super) states: BTreeMap<ThreadState, Tally>,
    pub(super) interrupted_by: BTreeMap<SourceId, Tally>,
    /// Whether it is the victim's: only the victim's threads have waits other than throttling.
    pub(super) followed: bool,
    /// Whether its number was another thread's before, so that there may be a time between.
    pub(super) taken_over: bool,
    span: Option<(Nanos, Nanos)>,
    /// The longest delays, as long as it is not known to be the victim's.
    early: Vec<Candidate>,
    /// Whether it was ever throttled.
    throttled: bool,
    /// Where it lately ran, by the place of the CPU: from when on each time, in order.
    places: BTreeMap<usize, VecDeque<Nanos>>,
}

impl Life {
    /// Delays kept of a thread that may turn out to be the victim's.
    const EARLY: usize = 3;
    /// And of one that was throttled: nothing else may ever happen to it.
    const EARLY_THROTTLED: usize = 10;
    /// Times on each CPU that are kept: rows of another CPU may come late by as many.
    const PLACES: usize = 32;

    pub(super) fn new(pid: i32) -> Self {
        Self {
            pid,
            states: BTreeMap::new(),
            interrupted_by: BTreeMap::new(),
            followed: false,
            taken_over: false,
            span: None,
            early: Vec::new(),
            throttled: false,
            places: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// Its last moment.
    pub(super) fn end(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(_, end)| end)
    }

    /// From its first moment to its last.
    pub(super) fn elapsed(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(begin, end)| end - begin)
    }

    /// The sum of its accounts.
    pub(super) fn accounted(&self) -> Nanos {
        self.states.values().map(|tally| tally.time).sum()
    }

    /// Takes note that it was there meanwhile.
    pub(super) fn saw(&mut self, span: &Span) {
        let (begin, end) = self.span.unwrap_or((span.start, span.end()));
        self.span = Some((begin.min(span.start), end.max(span.end())));
    }

    fn add(&mut self, state: ThreadState, time: Nanos, length: Nanos) {
        self.states.entry(state).or_default().add(time, length);
    }

    /// Adds a stretch on a CPU, and what interrupted it.
    pub(super) fn on_cpu(&mut self, span: &Span, state: ThreadState, by: &[(SourceId, Tally)]) {
        self.saw(span);
        self.add(state, span.self_time, span.dur);
        let interrupted = span.dur - span.self_time;
        if interrupted != Nanos::ZERO {
            self.states
                .entry(ThreadState::Interrupted)
                .or_default()
                .merge(&Tally {
                    time: interrupted,
                    count: 0,
                    longest: Nanos::ZERO,
                });
        }
        for (source, tally) in by {
            self.interrupted_by.entry(*source).or_default().merge(tally);
        }
    }

    /// Takes note of where it ran from `start` on.
    pub(super) fn ran_on(&mut self, start: Nanos, slot: usize) {
        if !self.followed {
            return;
        }
        let times = self.places.entry(slot).or_default();
        if times.len() >= Self::PLACES {
            times.pop_front();
        }
        times.push_back(start);
    }

    /// The place of the CPU that it last ran on before `time`; `None` where that is not known any more.
    pub(super) fn slot_before(&self, time: Nanos) -> Option<usize> {
        let mut last = None;
        for (&slot, times) in &self.places {
            let before = times.partition_point(|&start| start < time);
            match before.checked_sub(1).and_then(|at| times.get(at)) {
                Some(&start) => last = last.max(Some((start, slot))),
                None if times.len() >= Self::PLACES => return None,
                None => {}
            }
        }
        last.map(|(_, slot)| slot)
    }

    /// Takes note of the stretches for which it was interrupted.
    pub(super) fn interrupted(&mut self, stretches: Vec<Candidate>, worst: &mut Worst) {
        if let Some(tally) = self.states.get_mut(&ThreadState::Interrupted) {
            for stretch in &stretches {
                tally.count += 1;
                tally.longest = tally.longest.max(stretch.length());
            }
        }
        self.delayed(stretches, worst);
    }

    /// Takes note of delays.
    fn delayed(&mut self, delays: Vec<Candidate>, worst: &mut Worst) {
        if self.followed {
            for one in delays {
                worst.offer(one);
            }
            return;
        }
        self.early.extend(delays);
        self.early
            .sort_by_key(|one| std::cmp::Reverse(one.length()));
        self.early.truncate(if self.throttled {
            Self::EARLY_THROTTLED
        } else {
            Self::EARLY
        });
    }

    /// Adds a stretch off its CPU, but for throttling.
    pub(super) fn absent(&mut self, span: &Span, cause: OffCpuReason, worst: &mut Worst) {
        self.saw(span);
        self.add(cause.into(), span.dur, span.dur);
        self.known(worst);
    }

    /// Adds a stretch for which it was throttled, or waited for a CPU after that. These are told of
    /// any thread, so that they do not make it the victim's.
    pub(super) fn throttled(&mut self, state: ThreadState, delay: Candidate, worst: &mut Worst) {
        self.throttled = true;
        self.add(state, delay.length(), delay.length());
        self.delayed(vec![delay], worst);
    }

    /// Takes note that its number was another's before.
    pub(super) fn taken_over(&mut self) {
        self.taken_over |= !self.is_empty();
    }

    /// It is the victim's.
    pub(super) fn known(&mut self, worst: &mut Worst) {
        self.followed = true;
        for one in self.early.drain(..) {
            worst.offer(one);
        }
    }
}
