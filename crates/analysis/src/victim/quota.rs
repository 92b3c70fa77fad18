//! Threads whose CPU quota was used up: for how long, and for how long they waited for a CPU after
//! that.
//!
//! Where the tracer saw a timer give quota to the thread's cgroup or to one above it, a wait's own time is for how long it
//! was held, and the rest was a wait for a CPU. Elsewhere (an older recording, the flight recorder, a thread whose
//! cgroup was changed meanwhile) it is known that the timers of quotas alone give time again, so that
//! whatever part of a wait lies behind the last of them was a wait for a CPU.
//! Where cgroups with several quotas run, the last timer may have been another cgroup's: then a part
//! of the wait for a CPU still counts as throttling, and never the other way round.

use std::collections::VecDeque;

use ticktax_model::{Nanos, Span};

use crate::timeline::ThreadId;

/// A thread that was throttled, until it ran again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttled {
    pub(super) thread: ThreadId,
    pub(super) span: Span,
}

/// The timers of quotas, and the waits that are not over for sure: the timer's row may come after
/// the wait's, from another CPU.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// When timers ran, in order.
    refills: VecDeque<(Nanos, Nanos)>,
    /// By CPU, in the order in which they ended.
    waits: Vec<VecDeque<Throttled>>,
    waiting: usize,
}

impl Quota {
    /// Timers that are kept: a second of a thousand cgroups, and more.
    const MAX: usize = 1 << 14;
    /// By so much a row of another CPU may come late.
    const SETTLED: Nanos = Nanos::from_secs(1);

    /// Takes the row of a timer that gave a cgroup time again.
    pub(super) fn refill(&mut self, span: &Span) {
        let refill = (span.start, span.end());
        let at = self.refills.partition_point(|&other| other <= refill);
        self.refills.insert(at, refill);
        if self.refills.len() > Self::MAX {
            self.refills.pop_front();
        }
    }

    /// Takes the row of a throttled thread, from the CPU in `slot`.
    pub(super) fn wait(&mut self, slot: usize, wait: Throttled) {
        if slot >= self.waits.len() {
            self.waits.resize_with(slot + 1, VecDeque::new);
        }
        self.waits[slot].push_back(wait);
        self.waiting += 1;
    }

    /// The next wait on the CPU in `slot` that ended so long before `now` that all timers are known.
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

    /// The waits that are left, with the places of their CPUs.
    pub(super) fn rest(&mut self) -> Vec<(usize, Throttled)> {
        self.waiting = 0;
        let waits = std::mem::take(&mut self.waits).into_iter().enumerate();
        waits
            .flat_map(|(slot, waits)| waits.into_iter().map(move |wait| (slot, wait)))
            .collect()
    }

    /// The part of a wait for which the thread was throttled, and the part for which it then waited
    /// for a CPU.
    pub(super) fn split(&self, span: &Span) -> (Span, Option<Span>) {
        let end = span.end();
        let part = |start: Nanos, end: Nanos| Span {
            start,
            dur: end - start,
            self_time: end - start,
            ..*span
        };
        if span.self_time < span.dur {
            let free = span.start + span.self_time;
            return (part(span.start, free), Some(part(free, end)));
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
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Quota;

    fn span(start: i64, end: i64) -> Span {
        Span {
            cpu: Cpu(0),
            start: Nanos(start),
            dur: Nanos(end - start),
            self_time: Nanos(end - start),
            source: SourceId(0),
        }
    }

    #[test]
    fn what_lies_behind_the_last_timer_is_a_wait_for_a_cpu() {
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
        // The timer at 200 gave it nothing, or not enough.
        assert_eq!(split(100, 700), (510, Some((610, 90))));
        // It ran on another CPU before the timer was done.
        assert_eq!(split(100, 605), (505, None));
        assert_eq!(split(620, 990), (370, None));
    }

    /// Other cgroups' timers do not matter where it was seen when its own had quota again.
    #[test]
    fn a_cgroup_that_was_seen_to_have_quota_again_needs_no_timer() {
        let mut quota = Quota::default();
        quota.refill(&span(690, 700));
        let wait = Span {
            self_time: Nanos(300),
            ..span(100, 900)
        };
        let (throttled, waited) = quota.split(&wait);
        assert_eq!((throttled.start, throttled.dur), (Nanos(100), Nanos(300)));
        let waited = waited.map(|it| (it.start, it.dur));
        assert_eq!(waited, Some((Nanos(400), Nanos(500))));
    }
}
