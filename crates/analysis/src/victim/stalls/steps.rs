//! A thread's recent rows in order, and its busy times.

use std::collections::VecDeque;

use ticktax_model::victim::BlockedOn;
use ticktax_model::{Nanos, SourceId};

use super::sums::During;
use super::{Doing, Step, ended};
use crate::victim::wakers::Waking;

/// A thread's rows that have not been processed yet, sorted by start.
#[derive(Debug, Default)]
pub(super) struct Steps(VecDeque<Step>);

impl Steps {
    /// Maximum number of rows kept. If a thread has more in a second, the oldest are processed
    /// early.
    const MAX: usize = 1 << 16;
    /// Number of latest rows that a wake-up can belong to.
    const RECENT: usize = 8;

    pub(super) fn push(&mut self, step: Step) {
        let from = self.0.len();
        let before = self.0.iter().rev();
        let later = before.take_while(|other| other.span.start > step.span.start);
        let place = from - later.count();
        self.0.insert(place, step);
    }

    /// Returns the first row if it ended before `until`.
    pub(super) fn pop_before(&mut self, until: Nanos) -> Option<Step> {
        let is_due = |step: &Step| step.span.end() < until;
        let first = self.0.front()?;
        (is_due(first) || self.0.len() > Self::MAX)
            .then(|| self.0.pop_front())
            .flatten()
    }

    /// Adds a wake-up to the waits that it ended. Returns the start of such a wait for another
    /// thread.
    pub(super) fn woken(&mut self, waking: Waking) -> Option<Nanos> {
        let mut start = None;
        for step in self.0.iter_mut().rev().take(Self::RECENT) {
            if matches!(step.doing, Doing::Blocked(_)) && ended(waking, &step.span) {
                step.woken = step.woken.max(Some(waking));
                if step.doing == Doing::Blocked(BlockedOn::Thread) {
                    start = Some(step.span.start);
                }
            }
        }
        start
    }

    fn iter(&self) -> impl Iterator<Item = &Step> {
        self.0.iter()
    }
}

/// Times in which a thread was busy: it ran, waited for a CPU, or stalled.
#[derive(Debug, Default)]
pub(super) struct Busy(VecDeque<BusyTime>);

#[derive(Clone, Copy, Debug)]
struct BusyTime {
    start: Nanos,
    end: Nanos,
    ran: bool,
    /// The row's source, if the thread ran in a system call.
    call: Option<SourceId>,
}

impl BusyTime {
    fn of(step: &Step) -> Option<Self> {
        let ran = matches!(
            step.doing,
            Doing::Ran | Doing::Called | Doing::Faulted | Doing::Reclaimed
        );
        let is_busy = match step.doing {
            Doing::Blocked(on) => on.stall().is_some(),
            _ => true,
        };
        is_busy.then(|| Self {
            start: step.span.start,
            end: step.span.end(),
            ran,
            call: (step.doing == Doing::Called).then_some(step.span.source),
        })
    }
}

impl Busy {
    /// Maximum age of the times that are kept.
    const KEPT: Nanos = Nanos::from_secs(10);
    /// Maximum number of times kept per thread.
    const MAX: usize = 1 << 14;

    pub(super) fn add(&mut self, step: &Step) {
        let Some(time) = BusyTime::of(step) else {
            return;
        };
        match self.0.back_mut() {
            Some(last)
                if last.end == time.start && last.ran == time.ran && last.call == time.call =>
            {
                last.end = time.end;
            }
            _ => self.0.push_back(time),
        }
        let is_old = |oldest: &BusyTime| oldest.end < time.end - Self::KEPT;
        while self.0.len() > Self::MAX || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what the thread did from `start` to `end`. `recent` are its rows that have not been
    /// added yet.
    pub(super) fn during(&self, start: Nanos, end: Nanos, recent: &Steps) -> During {
        let first = self.0.partition_point(|time| time.end <= start);
        let times = self.0.range(first..).copied();
        let recent = recent.iter().filter_map(BusyTime::of);
        let mut during = During::default();
        for time in times.chain(recent).filter(|time| time.end > start) {
            if time.start >= end {
                break;
            }
            let length = time.end.min(end) - time.start.max(start);
            during.busy += length;
            if time.ran {
                during.ran += length;
            }
            if let Some(call) = time.call {
                match during.calls.iter_mut().find(|(known, _)| *known == call) {
                    Some((_, sum)) => *sum += length,
                    None => during.calls.push((call, length)),
                }
            }
        }
        during
    }
}
