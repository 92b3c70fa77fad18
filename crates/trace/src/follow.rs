//! Follows threads: registers them with the BPF programs, and adds information that the BPF
//! programs cannot have.
//!
//! The BPF programs learn about a thread from its first event. A thread that is asleep when
//! accounting starts has not had an event yet. Until it has one, or until recording ends, it is
//! assumed to stay in the state that `/proc` showed at the start.

use std::collections::HashMap;

use aya::maps::{HashMap as KernelMap, MapData};
use ticktax_model::recording::Row;
use ticktax_model::victim::{FollowedThread, RunState};
use ticktax_model::{Nanos, SourceTable};

use crate::close::Unseen;
use crate::object::map;
use crate::record::{self, CALL_SHIFT, MAX_CPUS, STACK_SHIFT, SpanRecord, detail, kind};
use crate::tracer::Tracer;

/// Returns the wait detail that corresponds to a thread's state in `/proc`. The state doesn't tell
/// the reason for an uninterruptible sleep.
fn detail_of(state: RunState) -> u64 {
    match state {
        RunState::Runnable => detail::PREEMPTED,
        RunState::Sleeping => detail::SLEEPING,
        RunState::Uninterruptible => detail::MISSED,
        RunState::Stopped => detail::STOPPED,
        RunState::Frozen => detail::FROZEN,
    }
}

/// States of the followed threads at the time when accounting started.
#[derive(Debug, Default)]
pub(crate) struct FirstStates {
    since: Nanos,
    by_thread: HashMap<u32, u64>,
}

impl FirstStates {
    /// Adds a start time and a cause to the record of a wait that began before accounting started.
    /// Returns `None` if the wait had also ended by then.
    pub(crate) fn complete(&self, mut record: SpanRecord) -> Option<SpanRecord> {
        if record.kind != kind::WAIT || record.detail != detail::UNSEEN {
            return Some(record);
        }
        let end = record.start.saturating_add(record.dur);
        let since = self.since.0.cast_unsigned();
        let state = self.by_thread.get(&record.tid).copied();
        record.start = since;
        record.dur = end.checked_sub(since)?;
        record.self_ns = record.dur.cast_signed();
        record.detail = state.unwrap_or(detail::MISSED);
        Some(record)
    }
}

/// Converts a detail that is not an address to the type that it has in a followed thread's entry.
fn small(detail: u64) -> u32 {
    u32::try_from(detail).unwrap_or(u32::MAX)
}

impl Tracer {
    fn threads(&mut self) -> Option<KernelMap<&mut MapData, u32, record::FollowedThread>> {
        KernelMap::try_from(self.programs.map_mut(map::THREADS)?).ok()
    }

    /// Returns the IDs of the threads in the map of followed threads.
    pub(crate) fn followed(&mut self) -> Vec<u32> {
        let threads = self.threads();
        threads.map_or_else(Vec::new, |threads| {
            threads.keys().filter_map(Result::ok).collect()
        })
    }

    fn insert_entry(&mut self, tid: i32, entry: record::FollowedThread) -> bool {
        let tid = tid.cast_unsigned();
        self.threads()
            .is_some_and(|mut threads| threads.insert(tid, entry, 0).is_ok())
    }

    /// Follows `threads`, and all threads that they start, beginning with [`Tracer::start`].
    /// Returns how many of `threads` fitted into the map of followed threads.
    pub fn follow(&mut self, threads: &[FollowedThread]) -> usize {
        let mut followed = 0;
        for thread in threads {
            let mut entry = record::FollowedThread {
                detail: small(detail::UNSEEN),
                tgid: thread.pid.cast_unsigned(),
                cpu: u32::try_from(MAX_CPUS).unwrap_or(u32::MAX),
                ..record::FollowedThread::default()
            };
            let name = thread.name.as_bytes();
            let length = name.len().min(entry.comm.len() - 1);
            entry.comm[..length].copy_from_slice(&name[..length]);
            followed += usize::from(self.insert_entry(thread.tid, entry));
        }
        followed
    }

    /// Stores the states that the followed threads have at `now`, just after accounting started. A
    /// thread is assumed to stay in its state until its first event.
    pub fn set_first_states(&mut self, now: Nanos, threads: &[FollowedThread]) {
        let state = |thread: &FollowedThread| (thread.tid.cast_unsigned(), detail_of(thread.state));
        self.first_states = FirstStates {
            since: now,
            by_thread: threads.iter().map(state).collect(),
        };
    }

    /// Follows the children of thread `tid`, but not `tid` itself. Returns whether this succeeded.
    pub fn follow_children_of(&mut self, tid: i32) -> bool {
        let parent = record::FollowedThread {
            detail: small(detail::PARENT),
            ..record::FollowedThread::default()
        };
        self.insert_entry(tid, parent)
    }

    /// Stops following a thread.
    pub fn let_go(&mut self, tid: i32) {
        if let Some(mut threads) = self.threads() {
            // If the thread has exited, its entry is already gone.
            let _ = threads.remove(&tid.cast_unsigned());
        }
    }

    /// Returns the entries of the followed threads, by thread ID.
    pub(crate) fn followed_entries(&mut self) -> Vec<(u32, record::FollowedThread)> {
        let threads = self.threads();
        threads.map_or_else(Vec::new, |threads| {
            threads.iter().filter_map(Result::ok).collect()
        })
    }

    /// Ends the waits of followed threads that were off CPU when recording stopped. If it is
    /// unknown whether a thread was still running, emits a [`detail::MISSED`] wait.
    pub(crate) fn end_absences(
        &mut self,
        until: Nanos,
        unseen: &[Unseen],
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        for (tid, entry) in self.followed_entries() {
            for record in last_absences(tid, &entry, until, unseen) {
                if let Some(record) = self.first_states.complete(record) {
                    let row = self.decoder.row(sources, &record);
                    sink(sources, &row);
                }
            }
        }
    }
}

/// Returns the waits of thread `tid` that were in progress at the end. Any time in which the
/// thread's state is unknown becomes a [`detail::MISSED`] wait.
fn last_absences(
    tid: u32,
    entry: &record::FollowedThread,
    until: Nanos,
    unseen: &[Unseen],
) -> Vec<SpanRecord> {
    let wait = |detail: u64, start: u64, end: u64| {
        let dur = end.saturating_sub(start);
        SpanRecord {
            start,
            dur,
            self_ns: dur.cast_signed(),
            detail,
            tid,
            tgid: entry.tgid,
            kind: kind::WAIT,
            cpu: match entry.cpu {
                cpu if cpu < small(MAX_CPUS as u64) => u16::try_from(cpu).unwrap_or(u16::MAX),
                _ => 0,
            },
            comm: entry.comm,
            ..SpanRecord::default()
        }
    };
    let detail = u64::from(entry.detail);
    let place = u64::from(entry.call) << CALL_SHIFT | u64::from(entry.stack) << STACK_SHIFT;
    let with_lock = |wait: SpanRecord| match u64::from(entry.detail) {
        detail::SLEEPING..=detail::LOCK if entry.lock != 0 => SpanRecord {
            self_ns: entry.lock.cast_signed(),
            ..wait
        },
        _ => wait,
    };
    let until = entry.since.max(until.0.cast_unsigned());
    let lost = unseen.iter().find(|lost| lost.known == tid);
    let found = unseen.iter().find(|lost| lost.found == tid);
    match (detail, lost, found) {
        (detail::NONE, Some(lost), _) => {
            vec![wait(detail::MISSED, lost.since.max(entry.since), until)]
        }
        (detail::NONE | detail::PARENT, ..) => Vec::new(),
        (_, _, Some(found)) => {
            let seen = found.since.max(entry.since);
            vec![
                with_lock(wait(placed(detail, place), entry.since, seen)),
                wait(detail::MISSED, seen, until),
            ]
        }
        (..) => vec![with_lock(wait(placed(detail, place), entry.since, until))],
    }
}

/// Adds the place where a thread waits to the detail of its wait. If the thread is not blocked, the
/// place belongs to an earlier wait and is left out.
fn placed(detail: u64, place: u64) -> u64 {
    match detail {
        detail::SLEEPING..=detail::LOCK => detail | place,
        _ => detail,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::victim::RunState;

    use super::{FirstStates, detail_of, last_absences, placed, small};
    use crate::close::Unseen;
    use crate::record::{FollowedThread, SpanRecord, detail, kind};

    #[test]
    fn unknown_time_at_the_end_is_marked_as_missed() {
        let unseen = [Unseen {
            known: 7,
            found: 9,
            since: 600,
        }];
        let absences = |tid, state, since| {
            let entry = FollowedThread {
                since,
                detail: small(state),
                cpu: 1,
                ..FollowedThread::default()
            };
            let records = last_absences(tid, &entry, Nanos(1_000), &unseen).into_iter();
            records
                .map(|record| (record.detail, record.start, record.dur))
                .collect::<Vec<(u64, u64, u64)>>()
        };
        assert_eq!(
            absences(3, detail::SLEEPING, 200),
            [(detail::SLEEPING, 200, 800)]
        );
        assert_eq!(absences(3, detail::NONE, 200), []);
        // According to its last event, the thread was running, but another thread was found on its
        // CPU.
        assert_eq!(absences(7, detail::NONE, 200), [(detail::MISSED, 600, 400)]);
        // According to its last event, the thread was sleeping, but it was found on a CPU.
        let found = [(detail::SLEEPING, 200, 400), (detail::MISSED, 600, 400)];
        assert_eq!(absences(9, detail::SLEEPING, 200), found);
        let later = [(detail::WOKEN, 700, 0), (detail::MISSED, 700, 300)];
        assert_eq!(absences(9, detail::WOKEN, 700), later);
        assert_eq!(placed(detail::LOCK, 5 << 32), detail::LOCK | 5 << 32);
        assert_eq!(placed(detail::WOKEN, 5 << 32), detail::WOKEN);
    }

    #[test]
    fn a_state_that_proc_cannot_tell_stays_unknown() {
        assert_eq!(detail_of(RunState::Sleeping), detail::SLEEPING);
        assert_eq!(detail_of(RunState::Frozen), detail::FROZEN);
        assert_eq!(detail_of(RunState::Uninterruptible), detail::MISSED);
    }

    #[test]
    fn a_wait_from_before_the_accounting_starts_with_it() {
        let states = FirstStates {
            since: Nanos(1_000),
            by_thread: [(7, detail::DISK)].into(),
        };
        let unseen = SpanRecord {
            dur: 1_500,
            tid: 7,
            kind: kind::WAIT,
            detail: detail::UNSEEN,
            ..SpanRecord::default()
        };
        let completed = states.complete(unseen).unwrap();
        assert_eq!(
            (completed.start, completed.dur, completed.self_ns),
            (1_000, 500, 500)
        );
        assert_eq!(completed.detail, detail::DISK);
        let unlisted = SpanRecord { tid: 8, ..unseen };
        let completed = states.complete(unlisted).unwrap();
        assert_eq!(completed.detail, detail::MISSED);
        let ended_before = SpanRecord { dur: 900, ..unseen };
        assert_eq!(states.complete(ended_before), None);
    }
}
