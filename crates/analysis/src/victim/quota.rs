//! Splits the waits of throttled threads into the throttled time and the wait for a CPU that
//! follows.
//!
//! If the tracer saw a timer replenish the quota of the thread's cgroup or of an ancestor, a wait
//! row's self time is its throttled time. The rest was a wait for a CPU.
//!
//! Otherwise, the quota timers decide. This concerns older recordings, the flight recorder, and
//! threads that changed cgroups during the wait. Only these timers replenish quotas, so the time
//! after the last timer run within a wait was a wait for a CPU. If several cgroups have quotas, the
//! last timer may belong to another cgroup. Part of the wait for a CPU then counts as throttling,
//! but never the other way round.

use std::collections::VecDeque;

use ticktax_model::{Nanos, Span};

use crate::timeline::ThreadId;

/// The interval from a thread's throttling until it ran again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttled {
    pub(super) thread: ThreadId,
    pub(super) span: Span,
}

/// Runs of quota timers, and the waits that cannot be split yet. A timer's row from another CPU may
/// arrive after the wait's row.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// Start and end of each timer run, in order.
    refills: VecDeque<(Nanos, Nanos)>,
    /// Waits that cannot be split yet, indexed by CPU slot, in the order in which they ended.
    waits: Vec<VecDeque<Throttled>>,
    /// Total number of waits in `waits`.
    waiting: usize,
}

impl Quota {
    /// Maximum number of timer runs kept. A thousand cgroups cause fewer than this in a second.
    const MAX: usize = 1 << 14;
    /// Longest delay with which rows from other CPUs arrive.
    const SETTLED: Nanos = Nanos::from_secs(1);

    /// Adds the run of a timer that replenished a cgroup's quota.
    pub(super) fn refill(&mut self, span: &Span) {
        let refill = (span.start, span.end());
        let at = self.refills.partition_point(|&other| other <= refill);
        self.refills.insert(at, refill);
        if self.refills.len() > Self::MAX {
            self.refills.pop_front();
        }
    }

    /// Holds back a throttled thread's wait. Its row came from the CPU in `slot`.
    pub(super) fn wait(&mut self, slot: usize, wait: Throttled) {
        if slot >= self.waits.len() {
            self.waits.resize_with(slot + 1, VecDeque::new);
        }
        self.waits[slot].push_back(wait);
        self.waiting += 1;
    }

    /// Returns the next wait on the CPU in `slot`, once it ended so long before `now` that all
    /// timers are known.
    #[inline]
    pub(super) fn settled(&mut self, slot: usize, now: Nanos) -> Option<Throttled> {
        if self.waiting == 0 {
            return None;
        }
        let waits = self.waits.get_mut(slot)?;
        let wait = waits.pop_front_if(|wait| wait.span.end() + Self::SETTLED < now)?;
        self.waiting -= 1;
        Some(wait)
    }

    pub(super) fn rest(&mut self) -> Vec<(usize, Throttled)> {
        self.waiting = 0;
        let waits = std::mem::take(&mut self.waits).into_iter().enumerate();
        waits
            .flat_map(|(slot, waits)| waits.into_iter().map(move |wait| (slot, wait)))
            .collect()
    }

    /// Splits a wait into its throttled part and the wait for a CPU that follows.
    pub(super) fn split(&self, span: &Span) -> (Span, Option<Span>) {
        let end = span.end();
        let part = |start: Nanos, end: Nanos| Span {
            start,
            dur: end - start,
            self_time: end - start,
            ..*span
        };
        if span.self_time < span.dur {
            let refilled = span.start + span.self_time;
            return (part(span.start, refilled), Some(part(refilled, end)));
        }
        let before = self.refills.partition_point(|&(start, _)| start < end);
        let refill = before.checked_sub(1).and_then(|at| self.refills.get(at));
        let Some(&(_, done)) = refill.filter(|&&(start, _)| start >= span.start) else {
            return (*span, None);
        };
        let done = done.min(end);
        let waited = (done < end).then(|| part(done, end));
        (part(span.start, done), waited)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Quota;

    pub(in crate::victim) fn span(start: i64, end: i64) -> Span {
        Span {
            cpu: Cpu(0),
            start: Nanos(start),
            dur: Nanos(end - start),
            self_time: Nanos(end - start),
            source: SourceId(0),
        }
    }

    #[test]
    fn time_after_the_last_timer_is_a_wait_for_a_cpu() {
        let mut quota = Quota::default();
        for (start, end) in [(1_000, 1_010), (200, 210), (600, 610)] {
            quota.refill(&span(start, end));
        }
        let split = |start, end| {
            let (throttled, waited) = quota.split(&span(start, end));
            (
                throttled.dur.0,
                waited.map(|waited| (waited.start.0, waited.dur.0)),
            )
        };
        // The timer at 200 replenished another quota, or did not replenish enough.
        assert_eq!(split(100, 700), (510, Some((610, 90))));
        // The thread ran on another CPU before the timer had finished.
        assert_eq!(split(100, 605), (505, None));
        assert_eq!(split(620, 990), (370, None));
    }

    /// If the refill of the thread's own cgroup was seen, timers of other cgroups are ignored.
    #[test]
    fn the_split_follows_own_time_if_the_refill_was_seen() {
        let mut quota = Quota::default();
        quota.refill(&span(690, 700));
        let wait = Span {
            self_time: Nanos(300),
            ..span(100, 900)
        };
        let (throttled, waited) = quota.split(&wait);
        assert_eq!((throttled.start, throttled.dur), (Nanos(100), Nanos(300)));
        let waited = waited.map(|span| (span.start, span.dur));
        assert_eq!(waited, Some((Nanos(400), Nanos(500))));
    }
}
