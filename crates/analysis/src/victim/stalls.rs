//! Finds the victim's stalls: periods in which a thread did not do what it wanted to do.
//!
//! # What counts
//! A wait for a disk, a lock or memory, and being frozen or stopped, always counts. A sleep on a
//! timer or on input never does. A wait for another thread, for example at a futex, can be either:
//! a worker without work waits at a futex, and so does a thread that needs a lock. Such a wait
//! counts only if all of these are true:
//!
//! - A thread of the same program ended it. If a timer ended it, because the wait had a time-out, a
//!   thread that then waits until the first thread wakes it counts instead: it has handed over a
//!   lock.
//! - That thread was busy for at least half of the wait, so it did not wait for work itself.
//! - The waiting thread was in the middle of a *request*, which lasts from one sleep on a timer or
//!   on input to the next. A worker that waits at futexes has no requests, even if it also sleeps
//!   now and then ([`Requests`]).
//!
//! A thread's own work counts only if it is exceptional ([`Requests`]).
//!
//! # Order of rows
//! A thread's rows come from several CPUs, and so do those of the thread that woke it. A thread's
//! rows are therefore sorted, and processed when a row arrives that is a second later.
//!
//! # Memory
//! The rows of the last second, each thread's busy times in the last ten seconds, and sums by
//! source. Once a second, all threads are looked at. A thread without a row for 15 s gives its
//! buffers back. After a minute, it may have exited: its work is judged, and it is forgotten. If it
//! only slept, it starts again as a new thread.

mod chain;
mod finish;
mod handovers;
mod memory;
mod names;
mod rank;
mod requests;
mod series;
mod steps;
mod sums;
mod together;

use std::collections::BTreeMap;

use ticktax_model::victim::{BlockedOn, HoldUp};
use ticktax_model::{Nanos, Owner, SourceId, SourceTable, Span};

use self::chain::Chain;
pub(super) use self::finish::{Finished, delay_place};
use self::handovers::Handovers;
pub(crate) use self::memory::blame_limit;
pub(crate) use self::rank::{is_other_rhythm, rank};
use self::requests::{Exceptional, Requests};
pub(crate) use self::series::{Moment, Moments};
use self::steps::{Busy, Steps};
use self::sums::{During, Sum};
use self::together::Together;
pub(super) use self::together::is_of_all_threads;
use super::wakers::{Waking, leads_to};
use crate::fast_map::FastMap;
use crate::timeline::ThreadId;

/// Longest delay with which rows from other CPUs arrive.
const SETTLED: Nanos = Nanos::from_secs(1);
/// A wait for another thread counts as a stall if that thread was busy for at least this share of
/// it.
const BUSY: f64 = 0.5;
/// Minimum length of a wait for another thread that counts as a stall, and of a timer's delay that
/// explains why a frame was late.
const SHORTEST: Nanos = Nanos::from_micros(100);

/// Minimum delay of a timer that counts as a stall.
const LATE_TIMER: Nanos = Nanos::from_millis(1);

/// Time between two looks at all threads.
const SWEEP: Nanos = Nanos::from_secs(1);
/// If a thread has no row for longer than this, its last wait for another thread has ended.
const PAUSED: Nanos = Nanos::from_secs(2);
/// Time without a row after which a thread needs no buffers. Busy times are not kept for so long.
const QUIET: Nanos = Nanos::from_secs(15);
/// Time without a row after which a thread is forgotten.
const GONE: Nanos = Nanos::from_secs(60);
/// Maximum number of stalls kept of threads that were forgotten.
const MAX_PAST: usize = 1 << 14;

/// Activity of a thread in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It ran its own code.
    Ran,
    /// It was in a long system call.
    Called,
    /// It handled a page fault.
    Faulted,
    /// It reclaimed memory.
    Reclaimed,
    /// It could have run, but waited for a CPU or was throttled.
    Waited,
    Blocked(BlockedOn),
}

/// A row of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) span: Span,
    pub(super) doing: Doing,
    /// The wake-up that ended a wait, if known.
    pub(super) woken: Option<Waking>,
}

/// A stall that has been found, for the lists of losses and of the longest delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) thread: ThreadId,
    pub(super) span: Span,
    pub(super) kind: HoldUp,
    pub(super) woken: Option<Waking>,
    /// Time that the thread which ended the stall ran during it, if it is a thread of the victim.
    pub(super) ran: Option<Nanos>,
    /// Whether the stall is certain. Otherwise, it explains a late frame, but nothing else.
    pub(super) counts: bool,
}

#[derive(Debug, Default)]
pub(super) struct Stalls {
    threads: FastMap<i32, Thread>,
    newest: Nanos,
    /// Waits, by the source of their rows.
    blocked: FastMap<SourceId, Sum>,
    /// Waits while the thread reclaimed memory, by source.
    in_reclaim: FastMap<SourceId, Sum>,
    /// Waits for other threads that count as stalls, by source.
    for_threads: FastMap<SourceId, Sum>,
    /// Delays of timers that their slack allowed, by source.
    slack: FastMap<SourceId, Sum>,
    /// Delays of timers that their slack did not allow, by source.
    late_timers: FastMap<SourceId, Sum>,
    handovers: Handovers,
    /// Stalls by kind. Their times are not relative to the start of the recording.
    moments: BTreeMap<HoldUp, Moments>,
    together: Together,
    /// Time of the next look at all threads.
    sweep_at: Nanos,
    /// Exceptional work of threads that were forgotten, with their ids.
    past: Vec<(ThreadId, Exceptional)>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: i32,
    /// End of the latest row.
    latest: Nanos,
    steps: Steps,
    busy: Busy,
    requests: Requests,
    chain: Option<Chain>,
    /// Row of the latest timer, until the row of the sleep arrives.
    timer: Option<Span>,
    /// End of the latest sleep.
    slept_until: Nanos,
    /// End of the latest row in which the thread reclaimed memory.
    reclaimed_until: Nanos,
    /// Source of the latest row in which the thread ran.
    source: Option<SourceId>,
}

/// A thread's wait for another thread.
#[derive(Clone, Debug)]
struct ThreadWait {
    span: Span,
    by: Option<SourceId>,
    /// Activity during the wait of the thread that ended it.
    during: During,
}

impl Stalls {
    /// Adds a row of a thread of the victim.
    pub(super) fn step(
        &mut self,
        thread: ThreadId,
        step: Step,
        sources: &SourceTable,
        found: &mut Vec<Found>,
    ) {
        self.newest = self.newest.max(step.span.end());
        if matches!(step.doing, Doing::Blocked(on) if on.stall().is_none()) {
            self.slept(thread, &step, found);
        }
        if let (Doing::Blocked(BlockedOn::Thread), Some((_, by))) = (step.doing, step.woken) {
            self.note_wait(thread.tid, step.span.start, by, sources);
        }
        let entry = self.threads.entry(thread.tid).or_default();
        entry.pid = thread.pid;
        entry.latest = entry.latest.max(step.span.end());
        entry.steps.push(step);
        self.process(thread.tid, self.newest - SETTLED, sources, found);
        if self.newest >= self.sweep_at {
            self.sweep_at = self.newest + SWEEP;
            self.sweep(sources, found);
        }
    }

    /// Processes the rows of all threads that are old enough, and frees what is not needed any
    /// more.
    fn sweep(&mut self, sources: &SourceTable, found: &mut Vec<Found>) {
        let now = self.newest;
        self.handovers.forget_before(now - QUIET);
        for tid in self.tids() {
            self.process(tid, now - SETTLED, sources, found);
            let latest = self.threads.get(&tid).map_or(now, |thread| thread.latest);
            if latest < now - GONE {
                self.forget(tid, sources, found);
            } else if latest < now - PAUSED {
                self.end_chain(tid, sources, found);
                let quiet = self.threads.get_mut(&tid);
                if let Some(thread) = quiet.filter(|_| latest < now - QUIET) {
                    thread.steps = Steps::default();
                    thread.busy = Busy::default();
                }
            }
        }
    }

    /// Notes that the id of a thread belongs to a new thread from `time` on.
    pub(super) fn reborn(
        &mut self,
        tid: i32,
        time: Nanos,
        sources: &SourceTable,
        found: &mut Vec<Found>,
    ) {
        // Rows of the old thread may still arrive, and other threads may have waited for it.
        let thread = self.threads.get(&tid);
        if thread.is_some_and(|thread| thread.latest < time - PAUSED) {
            self.forget(tid, sources, found);
        }
    }

    /// Processes the remaining rows of a thread, and removes it.
    fn forget(&mut self, tid: i32, sources: &SourceTable, found: &mut Vec<Found>) {
        self.end(tid, sources, found);
        if let Some(thread) = self.threads.remove(&tid) {
            let pid = thread.pid;
            let room = MAX_PAST.saturating_sub(self.past.len());
            let work = thread.requests.finish().into_iter().take(room);
            self.past
                .extend(work.map(|work| (ThreadId { pid, tid }, work)));
        }
    }

    /// Processes the remaining rows of a thread.
    fn end(&mut self, tid: i32, sources: &SourceTable, found: &mut Vec<Found>) {
        self.process(tid, Nanos(i64::MAX), sources, found);
        self.end_chain(tid, sources, found);
        if let Some(thread) = self.threads.get_mut(&tid) {
            let waits = thread.requests.unfinished();
            self.found_waits(tid, waits, false, found);
        }
    }

    fn tids(&self) -> Vec<i32> {
        let mut tids: Vec<i32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        tids
    }

    /// Adds the wake-up that ended a wait, if its edge arrives after the wait's row.
    pub(super) fn woken(&mut self, tid: i32, waking: Waking, sources: &SourceTable) {
        let thread = self.threads.get_mut(&tid);
        if let Some(start) = thread.and_then(|thread| thread.steps.woken(waking)) {
            self.note_wait(tid, start, waking.1, sources);
        }
    }

    fn note_stall(&mut self, kind: HoldUp, span: &Span) {
        self.moments.entry(kind).or_default().add(Moment {
            at: span.start,
            length: span.dur,
            dropped: None,
        });
    }

    /// Notes that source `by` ended a wait of thread `tid` for another thread.
    fn note_wait(&mut self, tid: i32, start: Nanos, by: SourceId, sources: &SourceTable) {
        if let Some(ender) = &sources.get(by).thread {
            self.handovers.add(ender.tid, start, tid);
        }
    }

    /// Adds the row of a timer. It lasts from the time that the thread had asked for until it was
    /// woken, and its own time is the part that the timer's slack allowed. It counts only if the
    /// row of a sleep has the same end. Otherwise, the thread was frozen or stopped when its timer
    /// fired.
    pub(super) fn timer(&mut self, thread: ThreadId, row: &Span, found: &mut Vec<Found>) {
        let entry = self.threads.entry(thread.tid).or_default();
        entry.pid = thread.pid;
        if entry.slept_until == row.end() {
            self.woken_by_timer(thread, *row, found);
        } else {
            entry.timer = Some(*row);
        }
    }

    /// Notes the end of a sleep. The row of its timer can precede or follow it.
    fn slept(&mut self, thread: ThreadId, step: &Step, found: &mut Vec<Found>) {
        let entry = self.threads.entry(thread.tid).or_default();
        entry.slept_until = step.span.end();
        let timer = entry.timer.take();
        if let Some(row) = timer.filter(|row| row.end() == step.span.end()) {
            self.woken_by_timer(thread, row, found);
        }
    }

    fn woken_by_timer(&mut self, thread: ThreadId, row: Span, found: &mut Vec<Found>) {
        let allowed = Span {
            dur: row.self_time.min(row.dur),
            ..row
        };
        let late = Span {
            start: allowed.end(),
            dur: row.dur - allowed.dur,
            ..row
        };
        for (span, kind) in [(allowed, HoldUp::TimerSlack), (late, HoldUp::LateTimer)] {
            let counts = span.dur >= LATE_TIMER;
            // A shorter delay of a late timer can still be part of what made a frame late.
            let explains = kind == HoldUp::LateTimer && span.dur >= SHORTEST;
            if !counts && !explains {
                continue;
            }
            if counts {
                let sums = match kind {
                    HoldUp::TimerSlack => &mut self.slack,
                    _ => &mut self.late_timers,
                };
                sums.entry(span.source).or_default().add(&span, None, None);
                self.note_stall(kind, &span);
            }
            found.push(Found {
                thread,
                span,
                kind,
                woken: None,
                ran: None,
                counts,
            });
        }
    }

    /// Processes all remaining rows. Must be called after the last row.
    pub(super) fn settle(&mut self, sources: &SourceTable, found: &mut Vec<Found>) {
        for tid in self.tids() {
            self.end(tid, sources, found);
        }
    }

    /// Processes the rows of thread `tid` that ended before `until`.
    fn process(&mut self, tid: i32, until: Nanos, sources: &SourceTable, found: &mut Vec<Found>) {
        loop {
            let Some(thread) = self.threads.get_mut(&tid) else {
                return;
            };
            let Some(step) = thread.steps.pop_before(until) else {
                return;
            };
            let step = thread.in_reclaim(step);
            thread.busy.add(&step);
            self.take(tid, &step, sources, found);
        }
    }

    fn take(&mut self, tid: i32, step: &Step, sources: &SourceTable, found: &mut Vec<Found>) {
        if let Doing::Blocked(on) = step.doing {
            let by = step.woken.map(|(_, by)| by);
            let during = self.during(tid, by, &step.span, sources);
            let ran = during.as_ref().map(|during| during.ran);
            let sums = match on {
                BlockedOn::Memory => &mut self.in_reclaim,
                _ => &mut self.blocked,
            };
            let sum = sums.entry(step.span.source).or_default();
            sum.add(&step.span, by, during);
            if let Some(kind) = self.for_process(tid, (on, step.span.dur), step.woken, sources) {
                self.explains(tid, kind, (step.span, step.woken), found);
            }
            if let Some(kind) = on.stall() {
                if is_of_all_threads(kind) {
                    self.together.add(kind, self.id(tid), &step.span);
                } else {
                    self.note_stall(kind, &step.span);
                }
                found.push(Found {
                    thread: self.id(tid),
                    span: step.span,
                    kind,
                    woken: step.woken,
                    ran,
                    counts: true,
                });
            }
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if step.doing == Doing::Ran {
            thread.source = Some(step.span.source);
        }
        let chain = &mut thread.chain;
        let (mut ends, mut starts) = (false, false);
        match (step.doing, chain) {
            (Doing::Blocked(BlockedOn::Thread), Some(chain)) => {
                ends = !chain.add(step);
                starts = ends;
            }
            (Doing::Blocked(BlockedOn::Thread), chain) => *chain = Some(Chain::new(step)),
            (Doing::Ran | Doing::Called | Doing::Faulted | Doing::Reclaimed, Some(chain)) => {
                ends = chain.ran(step.span.dur);
            }
            (Doing::Blocked(_), Some(_)) => ends = true,
            _ => {}
        }
        if ends {
            self.end_chain(tid, sources, found);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            if starts {
                thread.chain = Some(Chain::new(step));
            }
            let stalls = thread.requests.step(step);
            self.found_waits(tid, stalls, true, found);
        }
    }

    /// Judges a thread's wait for another thread.
    fn end_chain(&mut self, tid: i32, sources: &SourceTable, found: &mut Vec<Found>) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(chain) = thread.chain.take() else {
            return;
        };
        let is_long = chain.waited >= SHORTEST;
        if is_long {
            let others = thread.requests.count_wait();
            self.found_waits(tid, others, false, found);
        }
        let by = chain.woken.map(|(_, by)| by);
        let is_thread = |by: &SourceId| sources.get(*by).thread.is_some();
        let by = by
            .filter(is_thread)
            .or_else(|| self.handed_over(tid, chain.span.end()));
        let during = self.during(tid, by, &chain.span, sources);
        let busy = during.as_ref().map_or(Nanos::ZERO, |during| during.busy);
        let is_stall = is_long && busy.share_of(chain.span.dur) >= BUSY;
        if let (Some(during), true) = (during, is_stall) {
            let mut wait = Some(ThreadWait {
                span: chain.span,
                by,
                during,
            });
            if let Some(thread) = self.threads.get_mut(&tid) {
                wait = wait.and_then(|wait| thread.requests.add_wait(wait));
            }
            self.found_waits(tid, wait, false, found);
        } else if let Some(by) = by.filter(|_| is_long) {
            let kind = if self.is_other(tid, by, sources) {
                HoldUp::OtherThread
            } else {
                HoldUp::OwnThread
            };
            let woken = Some((chain.span.end(), by));
            self.explains(tid, kind, (chain.span, woken), found);
        }
    }

    /// Returns the kind of a wait for a child process, or for input from a thread of another
    /// program. A program may have nothing else to do in the meantime, so such a wait is a stall
    /// only if it made a frame late.
    fn for_process(
        &self,
        tid: i32,
        (on, length): (BlockedOn, Nanos),
        woken: Option<Waking>,
        sources: &SourceTable,
    ) -> Option<HoldUp> {
        let (_, by) = woken.filter(|_| length >= SHORTEST)?;
        match on {
            BlockedOn::Child => Some(HoldUp::ChildProcess),
            BlockedOn::Input => self
                .is_other(tid, by, sources)
                .then_some(HoldUp::OtherThread),
            _ => None,
        }
    }

    /// Returns whether a source is a thread of another program than thread `tid`.
    fn is_other(&self, tid: i32, by: SourceId, sources: &SourceTable) -> bool {
        let source = sources.get(by);
        let thread = source.thread.as_ref();
        let own = self.id(tid).pid;
        source.owner == Owner::Program && thread.is_some_and(|other| other.pid != own)
    }

    /// Adds a wait that can explain a late frame, but does not count as a stall.
    fn explains(
        &self,
        tid: i32,
        kind: HoldUp,
        (span, woken): (Span, Option<Waking>),
        found: &mut Vec<Found>,
    ) {
        found.push(Found {
            thread: self.id(tid),
            span,
            kind,
            woken,
            ran: None,
            counts: false,
        });
    }

    /// Adds waits for other threads to the stalls. `counts` has the same meaning as in [`Found`].
    fn found_waits(
        &mut self,
        tid: i32,
        waits: impl IntoIterator<Item = ThreadWait>,
        counts: bool,
        found: &mut Vec<Found>,
    ) {
        for ThreadWait { span, by, during } in waits {
            let ran = Some(during.ran);
            if counts {
                let sum = self.for_threads.entry(span.source).or_default();
                sum.add(&span, by, Some(during));
                self.note_stall(HoldUp::OwnThread, &span);
            }
            found.push(Found {
                thread: self.id(tid),
                span,
                kind: HoldUp::OwnThread,
                woken: by.map(|by| (span.end(), by)),
                ran,
                counts,
            });
        }
    }

    /// Returns the thread of the same process that stopped running around `time` until thread `tid`
    /// woke it.
    fn handed_over(&self, tid: i32, time: Nanos) -> Option<SourceId> {
        let pid = self.threads.get(&tid)?.pid;
        let waiters = self.handovers.around(tid, time);
        let others = waiters.filter(|&other| other != tid);
        let others = others.filter_map(|other| Some((other, self.threads.get(&other)?)));
        let handed = others.filter(|(_, thread)| thread.pid == pid);
        handed.min_by_key(|(other, _)| *other)?.1.source
    }

    fn id(&self, tid: i32) -> ThreadId {
        let pid = self.threads.get(&tid).map_or(0, |thread| thread.pid);
        ThreadId { pid, tid }
    }

    /// Returns what the thread behind source `by` did during a wait of thread `tid`. Returns `None`
    /// unless it is another thread of the victim.
    fn during(
        &self,
        tid: i32,
        by: Option<SourceId>,
        span: &Span,
        sources: &SourceTable,
    ) -> Option<During> {
        let other = sources.get(by?).thread.as_ref()?;
        let thread = self.threads.get(&other.tid)?;
        (other.tid != tid).then(|| thread.busy.during(span.start, span.end(), &thread.steps))
    }
}

/// Returns whether stalls of this kind are waits for a thread or process that is named.
pub(super) fn names_process(kind: HoldUp) -> bool {
    matches!(
        kind,
        HoldUp::OwnThread | HoldUp::OtherThread | HoldUp::ChildProcess
    )
}

/// Returns whether a wake-up ended the wait `span`.
fn ended(waking: Waking, span: &Span) -> bool {
    leads_to(waking, span.end()) && waking.0 >= span.start
}

#[cfg(test)]
mod tests;
