//! Sums of waits and stalls, with the longest of them and the sources that ended them.

use std::collections::BTreeMap;

use ticktax_model::{Nanos, SourceId, Span};

use crate::ledger::tally::Tally;

/// Maximum number of long stalls kept per source, from which the period is computed.
pub(super) const LONGEST: usize = 32;
/// Maximum number of sources kept that ended the waits of one source.
const ENDERS: usize = 64;

/// Waits of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) tally: Tally,
    /// The longest waits, longest first.
    pub(super) longest: Vec<Span>,
    pub(super) ended_by: BTreeMap<Option<SourceId>, Ended>,
    /// Filled by [`Sum::of_thread`].
    pub(super) threads: Threads,
}

/// Threads that waited, by id, each with one of its sources and its time.
pub(super) type Threads = BTreeMap<i32, (SourceId, Nanos)>;

fn merge_threads(sum: &mut Threads, other: Threads) {
    for (tid, (source, time)) in other {
        sum.entry(tid).or_insert((source, Nanos::ZERO)).1 += time;
    }
}

/// Waits that one source ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended {
    pub(super) time: Nanos,
    pub(super) count: u64,
    /// Time that the source ran during these waits. `None` if it is unknown.
    pub(super) ran: Option<Nanos>,
    pub(super) calls: BTreeMap<SourceId, Nanos>,
    /// Time by source of the waits' rows. Filled by [`Sum::of_thread`].
    pub(super) rows: BTreeMap<SourceId, Nanos>,
    /// Filled by [`Sum::of_thread`].
    pub(super) threads: Threads,
}

impl Ended {
    pub(super) fn add(&mut self, time: Nanos, during: Option<During>) {
        self.time += time;
        self.count += 1;
        if let Some(during) = during {
            *self.ran.get_or_insert_default() += during.ran;
            for (call, time) in during.calls {
                *self.calls.entry(call).or_default() += time;
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.time += other.time;
        self.count += other.count;
        if let Some(ran) = other.ran {
            *self.ran.get_or_insert_default() += ran;
        }
        for (call, time) in other.calls {
            *self.calls.entry(call).or_default() += time;
        }
        for (row, time) in other.rows {
            *self.rows.entry(row).or_default() += time;
        }
        merge_threads(&mut self.threads, other.threads);
    }
}

/// Activity of a thread during another thread's wait.
#[derive(Clone, Debug, Default)]
pub(super) struct During {
    /// Time that it ran.
    pub(super) ran: Nanos,
    /// Time that it ran, waited for a CPU, or stalled.
    pub(super) busy: Nanos,
    /// Part of `ran` that it spent in each system call.
    pub(super) calls: Vec<(SourceId, Nanos)>,
}

impl Sum {
    pub(super) fn add(&mut self, span: &Span, by: Option<SourceId>, during: Option<During>) {
        self.tally.add(span.dur, span.dur);
        let place = self.longest.partition_point(|other| other.dur >= span.dur);
        if place < LONGEST {
            self.longest.insert(place, *span);
            self.longest.truncate(LONGEST);
        }
        let has_room = self.ended_by.len() < ENDERS || self.ended_by.contains_key(&by);
        let by = by.filter(|_| has_room);
        self.ended_by.entry(by).or_default().add(span.dur, during);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.tally.merge(&other.tally);
        self.longest.extend(other.longest);
        for (by, ended) in other.ended_by {
            self.ended_by.entry(by).or_default().merge(ended);
        }
        merge_threads(&mut self.threads, other.threads);
    }

    /// Notes that all waits so far are those of thread `tid`, whose rows have this source.
    pub(super) fn of_thread(mut self, tid: i32, source: SourceId) -> Self {
        self.threads = [(tid, (source, self.tally.time))].into();
        for ended in self.ended_by.values_mut() {
            ended.rows = [(source, ended.time)].into();
            ended.threads = [(tid, (source, ended.time))].into();
        }
        self
    }
}
