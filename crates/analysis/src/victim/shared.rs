//! Finds throttled time in waits for a CPU.
//!
//! If a thread uses up the quota of its control group, all threads of the group stop, including
//! those that wait for a CPU behind it. The tracer reports only the thread that used up the quota
//! as throttled. The others look as if they waited for a CPU. The threads of a process are in the
//! same group, so the time in which one of them is throttled is throttling for all that wait for
//! the same CPU. On another CPU, the group may still have some quota.
//!
//! # Order of rows
//! The row of a throttled thread comes when it runs again, which may be after the other threads
//! have run. Waits are therefore held back until all of these rows have arrived.

use std::collections::VecDeque;

use ticktax_model::victim::{DelayKind, ThreadState};
use ticktax_model::{Cpu, Nanos, Span};

use super::Victim;
use super::life::Life;
use super::quota::Throttled;
use super::worst::Candidate;
use crate::fast_map::FastMap;
use crate::timeline::{History, Piece, ThreadId};

/// A wait for a CPU.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) thread: ThreadId,
    pub(super) kind: DelayKind,
    pub(super) span: Span,
    /// Activity of the CPU during the wait.
    pub(super) pieces: Vec<Piece>,
}

/// Part of a wait.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) span: Span,
    /// Whether the thread's group was throttled.
    pub(super) throttled: bool,
    /// Whether the thread had been throttled before in this wait.
    pub(super) after: bool,
    pub(super) pieces: Vec<Piece>,
}

impl Queued {
    /// Splits the wait at the ends of `throttled`, which are sorted and do not overlap.
    fn split(&self, throttled: &[(Nanos, Nanos)]) -> Vec<Part> {
        let end = self.span.end();
        let mut parts = Vec::new();
        let mut from = self.span.start;
        let mut add = |start: Nanos, end: Nanos, throttled: bool| {
            if start < end {
                let after = !throttled && !parts.is_empty();
                parts.push(self.part(start, end, throttled, after));
            }
        };
        for &(start, until) in throttled {
            let (start, until) = (start.max(from), until.min(end));
            if start < until {
                add(from, start, false);
                add(start, until, true);
                from = until;
            }
        }
        add(from, end, false);
        parts
    }

    fn part(&self, start: Nanos, end: Nanos, throttled: bool, after: bool) -> Part {
        let pieces = self.pieces.iter().filter_map(|piece| {
            let (start, end) = (piece.start.max(start), piece.end.min(end));
            (start < end).then_some(Piece {
                start,
                end,
                ..*piece
            })
        });
        Part {
            span: Span {
                start,
                dur: end - start,
                self_time: end - start,
                ..self.span
            },
            throttled,
            after,
            pieces: pieces.collect(),
        }
    }
}

/// Waits that may contain throttled time, and the intervals in which threads were throttled.
#[derive(Debug, Default)]
pub(super) struct SharedQuotas {
    waits: VecDeque<Queued>,
    /// By process id and CPU, sorted by start.
    throttled: FastMap<(i32, Cpu), VecDeque<(Nanos, Nanos)>>,
}

impl SharedQuotas {
    /// Minimum length of a wait that is held back.
    pub(super) const LONG: Nanos = Nanos::from_micros(200);
    /// Longest time from the end of a wait until all throttled intervals in it are known. A
    /// throttled thread waits for its turn after the refill, and its row is held back for a second.
    const SETTLED: Nanos = Nanos::from_millis(2_500);
    /// Maximum number of waits that are held back, and of intervals kept per process
    /// and CPU.
    const MAX: usize = 1 << 14;

    /// Adds an interval in which a thread of process `pid` was throttled.
    pub(super) fn throttled(&mut self, pid: i32, span: &Span) {
        let all = self.throttled.entry((pid, span.cpu)).or_default();
        let interval = (span.start, span.end());
        let at = all.partition_point(|other| *other <= interval);
        all.insert(at, interval);
        if all.len() > Self::MAX {
            all.pop_front();
        }
    }

    pub(super) fn push(&mut self, wait: Queued) {
        self.waits.push_back(wait);
    }

    /// Returns the next wait whose throttled part is known by `now`.
    #[inline]
    pub(super) fn settled(&mut self, now: Nanos) -> Option<Queued> {
        let is_full = self.waits.len() > Self::MAX;
        self.waits
            .pop_front_if(|wait| is_full || wait.span.end() + Self::SETTLED < now)
    }

    /// Removes and returns the waits of thread `tid`.
    pub(super) fn of_thread(&mut self, tid: i32) -> Vec<Queued> {
        let all = std::mem::take(&mut self.waits);
        let (own, others): (Vec<Queued>, VecDeque<Queued>) =
            all.into_iter().fold(Default::default(), |mut both, wait| {
                if wait.thread.tid == tid {
                    both.0.push(wait);
                } else {
                    both.1.push_back(wait);
                }
                both
            });
        self.waits = others;
        own
    }

    /// Splits a wait into the parts in which the thread's group was throttled, and the others.
    pub(super) fn split(&self, wait: &Queued) -> Vec<Part> {
        let Some(all) = self.throttled.get(&(wait.thread.pid, wait.span.cpu)) else {
            return wait.split(&[]);
        };
        let last = all.partition_point(|&(start, _)| start < wait.span.end());
        let during = all.range(..last).copied();
        let during = during.filter(|&(_, end)| end > wait.span.start);
        let mut union: Vec<(Nanos, Nanos)> = Vec::new();
        for (start, end) in during {
            match union.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => union.push((start, end)),
            }
        }
        wait.split(&union)
    }
}

impl Victim {
    /// Accounts for a wait that was held back, and for the throttled time in it.
    pub(super) fn queued(&mut self, wait: &Queued) {
        let ThreadId { tid, pid } = wait.thread;
        let parts = self.shared_quotas.split(wait);
        let waiting = parts.iter().filter(|part| !part.throttled);
        let waiting: Nanos = waiting.map(|part| part.span.dur).sum();
        if wait.kind == DelayKind::Woken {
            self.latency.add(waiting, waiting);
        }
        for part in parts {
            let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
            if part.throttled {
                let delay = Candidate::throttled(&part.span);
                life.throttled(ThreadState::Throttled, delay, &mut self.worst);
                if let Some(losses) = &mut self.losses {
                    losses.throttled(wait.thread, &part.span);
                }
                continue;
            }
            life.waited(&part.span);
            let kind = if part.after {
                DelayKind::Unthrottled
            } else {
                wait.kind
            };
            self.waited(wait.thread, kind, &part.span, (None, false, &part.pieces));
        }
    }

    /// Accounts for an interval in which a thread was throttled and may then have waited for a CPU.
    /// `history` is the history of the CPU on which the thread then ran.
    pub(super) fn throttled(&mut self, wait: &Throttled, history: Option<&History>) {
        let ThreadId { tid, pid } = wait.thread;
        let (throttled, waited) = self.quota.split(&wait.span);
        self.shared_quotas.throttled(pid, &throttled);
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        let delay = Candidate::throttled(&throttled);
        life.throttled(ThreadState::Throttled, delay, &mut self.worst);
        if let Some(losses) = &mut self.losses {
            losses.throttled(wait.thread, &throttled);
        }
        if let Some(waited) = waited {
            let pieces: Vec<Piece> = history
                .into_iter()
                .flat_map(|history| history.ran_during(&waited))
                .collect();
            let ran = pieces.iter().copied();
            let delay = Candidate::waiting(DelayKind::Unthrottled, &waited, ran);
            life.throttled(ThreadState::Waiting, delay, &mut self.worst);
            if life.followed {
                self.add_behind(wait.thread, &waited, None, false, &pieces);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::victim::DelayKind;
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::super::quota::tests::span;
    use super::{Queued, SharedQuotas};
    use crate::timeline::{Piece, ThreadId};

    fn wait(pid: i32) -> Queued {
        Queued {
            thread: ThreadId { pid, tid: pid + 1 },
            kind: DelayKind::Woken,
            span: span(100, 200),
            pieces: vec![
                Piece {
                    start: Nanos(100),
                    end: Nanos(120),
                    source: SourceId(1),
                },
                Piece {
                    start: Nanos(120),
                    end: Nanos(200),
                    source: SourceId(2),
                },
            ],
        }
    }

    /// A sibling runs until it has used up the quota. It is throttled until the refill, and then
    /// the thread waits a little for the CPU.
    #[test]
    fn a_wait_behind_a_sibling_becomes_throttling_once_the_quota_is_used_up() {
        let mut quotas = SharedQuotas::default();
        quotas.throttled(7, &span(120, 190));
        quotas.throttled(7, &span(130, 180));
        quotas.throttled(9, &span(100, 120));
        let parts = quotas.split(&wait(7));
        let found: Vec<_> = parts
            .iter()
            .map(|part| {
                let ran: Vec<u32> = part.pieces.iter().map(|piece| piece.source.0).collect();
                let times = (part.span.start.0, part.span.end().0);
                (times, part.throttled, part.after, ran)
            })
            .collect();
        let expected = [
            ((100, 120), false, false, vec![1]),
            ((120, 190), true, false, vec![2]),
            ((190, 200), false, true, vec![2]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn other_processes_and_cpus_have_their_own_quota() {
        let mut quotas = SharedQuotas::default();
        quotas.throttled(9, &span(120, 190));
        let elsewhere = Span {
            cpu: Cpu(1),
            ..span(120, 190)
        };
        quotas.throttled(7, &elsewhere);
        let parts = quotas.split(&wait(7));
        assert_eq!(parts.len(), 1);
        assert!(!parts[0].throttled && parts[0].pieces.len() == 2);
    }

    #[test]
    fn waits_are_held_back_until_the_rows_of_others_have_arrived() {
        let mut quotas = SharedQuotas::default();
        quotas.push(wait(7));
        quotas.push(wait(17));
        assert!(quotas.settled(Nanos::from_secs(2)).is_none());
        assert_eq!(quotas.of_thread(8).len(), 1);
        let later = Nanos::from_secs(3);
        let settled = quotas.settled(later).map(|wait| wait.thread.pid);
        assert_eq!(settled, Some(17));
        assert!(quotas.settled(later).is_none());
    }
}
