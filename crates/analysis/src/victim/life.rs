//! The life of one thread. Its accounts must add up to the life's length.

use std::collections::{BTreeMap, VecDeque};

use ticktax_model::victim::{OffCpuReason, ThreadState};
use ticktax_model::{Nanos, SourceId, Span};

use super::worst::{Candidate, Worst};
use crate::ledger::tally::Tally;

/// The accounts and recent runs of one thread.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a thread"
)]
pub(super) struct Life {
    pub(super) pid: i32,
    pub(super) states: BTreeMap<ThreadState, Tally>,
    pub(super) interrupted_by: BTreeMap<SourceId, Tally>,
    /// Whether the thread is known to be the victim's. Only the victim's threads have wait rows
    /// that give reasons other than throttling.
    pub(super) followed: bool,
    /// Whether the thread id belonged to another thread before. In that case, the time between the
    /// two threads is unaccounted for.
    pub(super) taken_over: bool,
    /// Source of the latest row in which the thread ran. Its name can change.
    pub(super) source: Option<(Nanos, SourceId)>,
    /// Whether the thread was created while it was followed.
    pub(super) born: bool,
    /// Start of the first row and end of the last row so far.
    span: Option<(Nanos, Nanos)>,
    /// The longest delays, held until the thread is known to be the victim's.
    early: Vec<Candidate>,
    /// Whether the thread was ever throttled.
    throttled: bool,
    /// Start times of the thread's recent runs, in order, by CPU slot.
    recent_runs: BTreeMap<usize, VecDeque<Nanos>>,
}

impl Life {
    /// Maximum number of delays held for a thread that may turn out to be the victim's.
    const EARLY: usize = 3;
    /// Same as [`Self::EARLY`] for a throttled thread. Throttling does not show whether a thread is
    /// the victim's, so it must be possible to hold all of its delays.
    const EARLY_THROTTLED: usize = 10;
    /// Maximum number of run starts kept per CPU. Another CPU's rows may arrive late by this many
    /// runs.
    const RECENT_RUNS: usize = 32;

    pub(super) fn new(pid: i32) -> Self {
        Self {
            pid,
            states: BTreeMap::new(),
            interrupted_by: BTreeMap::new(),
            followed: false,
            taken_over: false,
            source: None,
            born: false,
            span: None,
            early: Vec::new(),
            throttled: false,
            recent_runs: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    pub(super) fn end(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(_, end)| end)
    }

    pub(super) fn elapsed(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(begin, end)| end - begin)
    }

    /// Returns the time that the thread ran, without interruptions.
    pub(super) fn ran(&self) -> Nanos {
        let states = self.states.iter().filter(|(state, _)| {
            matches!(
                state,
                ThreadState::Running
                    | ThreadState::SystemCall
                    | ThreadState::PageFault
                    | ThreadState::Reclaim
            )
        });
        states.map(|(_, tally)| tally.time).sum()
    }

    pub(super) fn accounted(&self) -> Nanos {
        self.states.values().map(|tally| tally.time).sum()
    }

    pub(super) fn saw(&mut self, span: &Span) {
        let (begin, end) = self.span.unwrap_or((span.start, span.end()));
        self.span = Some((begin.min(span.start), end.max(span.end())));
    }

    fn add(&mut self, state: ThreadState, time: Nanos, length: Nanos) {
        self.states.entry(state).or_default().add(time, length);
    }

    pub(super) fn on_cpu(&mut self, span: &Span, state: ThreadState, by: &[(SourceId, Tally)]) {
        self.saw(span);
        self.source = self.source.max(Some((span.start, span.source)));
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

    pub(super) fn ran_on(&mut self, start: Nanos, slot: usize) {
        if !self.followed {
            return;
        }
        let times = self.recent_runs.entry(slot).or_default();
        if times.len() >= Self::RECENT_RUNS {
            times.pop_front();
        }
        times.push_back(start);
    }

    /// Returns the slot of the CPU on which the thread last ran before `time`. Returns `None` if
    /// that is unknown or no longer kept.
    pub(super) fn slot_before(&self, time: Nanos) -> Option<usize> {
        let mut last = None;
        for (&slot, times) in &self.recent_runs {
            let before = times.partition_point(|&start| start < time);
            match before.checked_sub(1).and_then(|at| times.get(at)) {
                Some(&start) => last = last.max(Some((start, slot))),
                None if times.len() >= Self::RECENT_RUNS => return None,
                None => {}
            }
        }
        last.map(|(_, slot)| slot)
    }

    /// Forgets all runs except the last one. Must only be called once no earlier row can arrive.
    pub(super) fn forget_runs(&mut self) {
        let last = |(&slot, times): (&usize, &VecDeque<Nanos>)| Some((*times.back()?, slot));
        let last = self.recent_runs.iter().filter_map(last).max();
        let runs = last.map(|(start, slot)| (slot, VecDeque::from([start])));
        self.recent_runs = runs.into_iter().collect();
    }

    /// Counts interruptions, and offers them as candidates for the longest delays. [`Life::on_cpu`]
    /// has already added their time.
    pub(super) fn interrupted(&mut self, interruptions: Vec<Candidate>, worst: &mut Worst) {
        if let Some(tally) = self.states.get_mut(&ThreadState::Interrupted) {
            for interruption in &interruptions {
                tally.count += 1;
                tally.longest = tally.longest.max(interruption.length());
            }
        }
        self.delayed(interruptions, worst);
    }

    fn delayed(&mut self, delays: Vec<Candidate>, worst: &mut Worst) {
        if self.followed {
            for delay in delays {
                worst.offer(delay);
            }
            return;
        }
        self.early.extend(delays);
        self.early
            .sort_by_key(|delay| std::cmp::Reverse(delay.length()));
        self.early.truncate(if self.throttled {
            Self::EARLY_THROTTLED
        } else {
            Self::EARLY
        });
    }

    /// Adds an off-CPU interval other than throttling. Only the victim's threads have such rows.
    pub(super) fn absent(&mut self, span: &Span, cause: OffCpuReason, worst: &mut Worst) {
        self.saw(span);
        self.add(cause.into(), span.dur, span.dur);
        self.follow(worst);
    }

    /// Notes a wait for a CPU, whose time is added later.
    pub(super) fn queued(&mut self, span: &Span, worst: &mut Worst) {
        self.saw(span);
        self.follow(worst);
    }

    /// Adds a wait for a CPU, or part of one.
    pub(super) fn waited(&mut self, span: &Span) {
        self.add(ThreadState::Waiting, span.dur, span.dur);
    }

    /// Adds an interval in which a limit kept the thread from running.
    pub(super) fn held(&mut self, state: ThreadState, span: &Span) {
        self.add(state, span.dur, span.dur);
    }

    /// Adds an interval of throttling, or of waiting for a CPU after throttling. The tracer reports
    /// these for every thread, so this thread need not be the victim's.
    pub(super) fn throttled(&mut self, state: ThreadState, delay: Candidate, worst: &mut Worst) {
        self.throttled = true;
        self.add(state, delay.length(), delay.length());
        self.delayed(vec![delay], worst);
    }

    /// Notes that the thread id now belongs to a new thread.
    pub(super) fn taken_over(&mut self) {
        self.taken_over |= !self.is_empty();
    }

    /// Notes that the thread is the victim's.
    pub(super) fn follow(&mut self, worst: &mut Worst) {
        self.followed = true;
        for delay in self.early.drain(..) {
            worst.offer(delay);
        }
    }
}
