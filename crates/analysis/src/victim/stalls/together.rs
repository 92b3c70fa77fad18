//! Joins stalls that hit several threads of the victim at the same time.
//!
//! A freezer or a signal stops a whole program. This is one stall, however many threads it has.

use std::collections::BTreeMap;

use ticktax_model::victim::HoldUp;
use ticktax_model::{Nanos, Span};

use crate::fast_map::FastMap;
use crate::timeline::ThreadId;

/// The stalls of each thread, by kind.
#[derive(Debug, Default)]
pub(super) struct Together(BTreeMap<HoldUp, FastMap<(i32, i32), Vec<Span>>>);

impl Together {
    /// Maximum number of stalls kept per thread. Later ones are ignored.
    const MAX: usize = 1 << 12;

    pub(super) fn add(&mut self, kind: HoldUp, thread: ThreadId, span: &Span) {
        let threads = self.0.entry(kind).or_default();
        let all = threads.entry((thread.pid, thread.tid)).or_default();
        if all.len() < Self::MAX {
            all.push(*span);
        }
    }

    /// Returns the stalls of the threads that satisfy `is_reported`, by kind. Stalls that overlap
    /// are joined.
    pub(super) fn joined(
        self,
        is_reported: impl Fn(ThreadId) -> bool,
    ) -> impl Iterator<Item = (HoldUp, Vec<Span>)> {
        let joined = self.0.into_iter().map(move |(kind, threads)| {
            let own = threads.into_iter().filter(|((pid, tid), _)| {
                is_reported(ThreadId {
                    pid: *pid,
                    tid: *tid,
                })
            });
            (kind, join(own.flat_map(|(_, spans)| spans).collect()))
        });
        joined.filter(|(_, spans)| !spans.is_empty())
    }
}

/// Returns whether stalls of this kind hit all threads of a program.
pub(in crate::victim) fn is_of_all_threads(kind: HoldUp) -> bool {
    matches!(kind, HoldUp::Frozen | HoldUp::Stopped)
}

fn join(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.start, span.source));
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut().filter(|last| last.end() >= span.start) {
            Some(last) => {
                let end = last.end().max(span.end());
                last.dur = end - last.start;
            }
            None => joined.push(span),
        }
    }
    joined
}

/// Returns the total time and the longest of these stalls.
pub(super) fn time_and_longest(spans: &[Span]) -> (Nanos, Nanos) {
    let lengths = || spans.iter().map(|span| span.dur);
    (lengths().sum(), lengths().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ticktax_model::victim::HoldUp;

    use super::Together;
    use crate::timeline::ThreadId;
    use crate::victim::quota::tests::span;

    #[test]
    fn a_freeze_of_two_threads_is_one_stall() {
        let mut all = Together::default();
        let thread = |tid| ThreadId { pid: 7, tid };
        for (tid, start, end) in [(7, 100, 250), (8, 110, 251), (8, 400, 410), (9, 0, 900)] {
            all.add(HoldUp::Frozen, thread(tid), &span(start, end));
        }
        let joined: Vec<_> = all.joined(|thread| thread.tid != 9).collect();
        let [(HoldUp::Frozen, spans)] = &*joined else {
            panic!("{joined:?}");
        };
        let times: Vec<(i64, i64)> = spans.iter().map(|s| (s.start.0, s.end().0)).collect();
        assert_eq!(times, [(100, 251), (400, 410)]);
    }
}
