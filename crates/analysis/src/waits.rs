//! Computes which threads of a machine waited for a CPU, and which threads ran in the meantime.
//!
//! # Waits
//! A wait begins when a thread is woken (an edge) or preempted, and ends when the thread runs. A
//! thread that runs again without having been woken since its last run did not sleep: it was
//! preempted. If events were lost, a wake-up may be missing, so only waits that begin with one are
//! reported. Waits that cross either end of the recording are not reported.
//!
//! A woken thread preempts ticktax's spinning probe immediately, as if the CPU were idle. If the
//! probe ran for long before a thread came back, that thread was therefore asleep, and its wake-up
//! is missing. Autogroups are an exception, because they divide CPU time between sessions first. A
//! thread of another session waits behind the probe as behind any program, and such waits are
//! reported.
//!
//! If the kernel did not report the switch to a thread, the thread that waited may be the one that
//! ran. A wait is therefore reported only if such runs take up a small part of it, so that it is at
//! most that much too long.
//!
//! # Order of rows
//! Edges and rows from other CPUs can arrive late. The start of a wait is therefore looked up only
//! when a row arrives that is a second later than the run which ended the wait. Wake-ups that
//! arrive even later are ignored. The threads that ran during the wait are looked up at the CPU's
//! next row, which may come much later.
//!
//! # Memory
//! The wake-ups and runs of each thread in the last two seconds are kept, and sums by the source
//! that waited and the source that ran.

mod probe;
mod sums;

use std::collections::BTreeMap;

use ticktax_model::hook::Hook;
use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::waits::WaitStatement;
use ticktax_model::{Cpu, Nanos, Owner, SourceId, SourceTable, Span};

use self::probe::{CpuTimes, Sessions};
use self::sums::WaitSums;
use crate::fast_map::FastMap;
use crate::groups::Groups;
use crate::late::{Inserter, partition_near};
use crate::ledger::tally::Tally;
use crate::names::named;
use crate::real_time::{LimitedWaits, RealTime};
use crate::segments::Segments;
use crate::timeline::{Event, EventKind, History, Occupant, Piece, Timeline};

/// Longest delay with which rows from other CPUs arrive.
const SETTLED: Nanos = Nanos::from_secs(1);
/// Maximum number of unreported threads' runs kept. If a run was dropped, waits that begin before
/// it ended are not reported.
const UNREPORTED: usize = 4_096;
/// Divisor for the part of a wait in which unreported threads may run, on any CPU: a twentieth.
const UNREPORTED_PART: i64 = 20;

#[derive(Debug, Default)]
pub(crate) struct Waits {
    threads: Segments<Thread>,
    /// Index in `threads` by thread id.
    by_tid: FastMap<i32, u32>,
    late: Inserter,
    /// Runs whose preceding wait has not been looked up yet, in order of arrival.
    runs: Segments<RunStart>,
    /// Latest end among threads' rows.
    newest: Nanos,
    /// Waits whose start is known but that are not judged yet, by CPU slot.
    dated: Vec<Segments<Wait>>,
    /// For each CPU slot, the place in its history that the latest wait was looked up at.
    places: Vec<usize>,
    /// Reused for each wait, to avoid allocation.
    pieces: Vec<Piece>,
    found: ByStart,
    /// Waits during which the probe ran for long.
    behind_probe: ByStart,
    /// Number of wake-ups.
    edges: u64,
    /// Runs, on any CPU, of threads whose switches were not reported, sorted by end.
    unreported: Segments<(Nanos, Nanos)>,
    /// Latest end of a run that was dropped from `unreported`.
    forgotten: Nanos,
}

/// A thread's recent wake-ups and runs, in order.
#[derive(Debug)]
struct Thread {
    tid: i32,
    wakes: Segments<Nanos>,
    /// Start and end of each run.
    runs: Segments<(Nanos, Nanos)>,
    /// Places in `wakes` and `runs` at which the latest wait was looked up.
    places: (usize, usize),
}

/// The start of a thread's run.
#[derive(Clone, Copy, Debug)]
struct RunStart {
    slot: usize,
    /// Index of the thread.
    thread: u32,
    source: SourceId,
    begin: Nanos,
    after_idle: bool,
}

/// A possible wait before a run. It counts as a wait only if other threads ran on that CPU.
#[derive(Clone, Copy, Debug)]
struct Wait {
    run: RunStart,
    start: Start,
}

/// Sums of waits, by whether they began with a wake-up or a preemption.
#[derive(Debug, Default)]
struct ByStart {
    woken: WaitSums,
    preempted: WaitSums,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Woken(Nanos),
    Preempted(Nanos),
}

impl Start {
    fn at(self) -> Nanos {
        let (Self::Woken(at) | Self::Preempted(at)) = self;
        at
    }
}

impl Waits {
    /// Adds an event. `real_time` must have it already. It is `None` if limits on real-time threads
    /// hold back none.
    pub(crate) fn event(
        &mut self,
        event: &Event<'_>,
        history: &History,
        real_time: Option<&mut RealTime>,
    ) {
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), onset) => {
                let Some(thread) = on.thread else {
                    self.unreported(event.span);
                    return;
                };
                let span = event.span;
                self.newest = self.newest.max(span.end());
                // Waits of ticktax's own threads do not count. Other threads can still wait behind
                // them, because their runs are in the CPU's history.
                if !matches!(on.owner, Owner::Probe | Owner::Tool) {
                    let place = self.place(thread.tid);
                    self.threads[place as usize].ran(span, &mut self.late);
                    let may_be_held = || {
                        let limits = real_time.as_ref();
                        limits.is_some_and(|limits| limits.left(event.slot, thread.tid, span.start))
                    };
                    // On an idle CPU, nothing delays a thread except a limit on real-time threads.
                    if !onset.continues && (!onset.after_idle || may_be_held()) {
                        self.runs.push_back(RunStart {
                            slot: event.slot,
                            thread: place,
                            source: span.source,
                            begin: span.start,
                            after_idle: onset.after_idle,
                        });
                    }
                }
                self.date_until(self.newest - SETTLED);
                self.judge_on(event.slot, history, real_time, event.sources);
            }
            EventKind::Edge(edge) => self.edge(edge),
            _ => {}
        }
    }

    /// Returns the index of the thread with this id.
    fn place(&mut self, tid: i32) -> u32 {
        *self.by_tid.entry(tid).or_insert_with(|| {
            let place = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
            self.threads.push_back(Thread::new(tid));
            place
        })
    }

    /// Notes the run of a thread whose switch the kernel did not report, so that it may have been
    /// any thread.
    fn unreported(&mut self, span: &Span) {
        let run = (span.start, span.end());
        let is_kept = self.late.insert(&mut self.unreported, run, |run| run.1);
        let is_full = self.unreported.len() > UNREPORTED;
        let oldest = is_full.then(|| self.unreported.pop_front()).flatten();
        let dropped = oldest.or((!is_kept).then_some(run));
        if let Some((_, end)) = dropped {
            self.forgotten = end.max(self.forgotten);
        }
    }

    /// Returns whether a thread that seems to have waited from `begin` to `end` may have run for a
    /// significant part of that time.
    fn may_have_run(&self, begin: Nanos, end: Nanos) -> bool {
        let latest = self.unreported.iter().rev();
        let latest = latest.take_while(|(_, to)| *to > begin);
        let shared = latest.map(|&(from, to)| (to.min(end) - from.max(begin)).max(Nanos::ZERO));
        begin < self.forgotten || exceeds_part(shared, end - begin)
    }

    fn edge(&mut self, edge: &Edge) {
        let Effect::Woke(tid) = edge.effect else {
            return;
        };
        self.edges += 1;
        let place = self.place(tid);
        let wakes = &mut self.threads[place as usize].wakes;
        // A thread on an unwatched CPU is woken again and again but never seen to run. A wake-up
        // becomes useless once a later one precedes every run that is still to be judged.
        let needed = edge.span.start - SETTLED - SETTLED;
        while wakes.len() > 1 && wakes[1] < needed {
            wakes.pop_front();
        }
        self.late.insert(wakes, edge.span.start, |&at| at);
    }

    /// Looks up the start of the wait before each run that began before `until`.
    fn date_until(&mut self, until: Nanos) {
        while let Some(run) = self.runs.pop_front_if(|run| run.begin < until) {
            let Some(start) = self.threads[run.thread as usize].wait_before(run.begin) else {
                continue;
            };
            if self.may_have_run(start.at(), run.begin) {
                continue;
            }
            if run.slot >= self.dated.len() {
                self.dated.resize_with(run.slot + 1, Segments::new);
            }
            self.dated[run.slot].push_back(Wait { run, start });
        }
    }

    /// Judges the waits for the CPU in `slot` whose start is known. `history` is that CPU's
    /// history.
    fn judge_on(
        &mut self,
        slot: usize,
        history: &History,
        mut real_time: Option<&mut RealTime>,
        sources: &SourceTable,
    ) {
        while let Some(wait) = self.dated.get_mut(slot).and_then(Segments::pop_front) {
            self.judge(wait, history, real_time.as_deref_mut(), sources);
        }
    }

    fn judge(
        &mut self,
        wait: Wait,
        history: &History,
        real_time: Option<&mut RealTime>,
        sources: &SourceTable,
    ) {
        let Wait { run, start } = wait;
        let slot = run.slot;
        let at = start.at();
        let span = Span {
            cpu: Cpu(u32::try_from(slot).unwrap_or(u32::MAX)),
            start: at,
            dur: run.begin - at,
            self_time: run.begin - at,
            source: run.source,
        };
        let woken = matches!(start, Start::Woken(_));
        let limits = real_time.filter(|limits| limits.wants(span.dur));
        if run.after_idle && limits.is_none() {
            return;
        }
        if slot >= self.places.len() {
            self.places.resize(slot + 1, 0);
        }
        let pieces = &mut self.pieces;
        pieces.clear();
        pieces.extend(history.on_cpu_near(&span, &mut self.places[slot]));
        if let Some(limits) = limits {
            let pieces = pieces.iter().copied();
            let tid = self.threads[run.thread as usize].tid;
            limits.waited(slot, tid, woken, &span, pieces, sources);
        }
        if run.after_idle {
            return;
        }
        if rows_are_missing(&span, pieces, history) {
            return;
        }
        let times = CpuTimes::of_pieces(pieces, sources);
        let (sums, probe) = if times.is_wait() {
            (&mut self.found, false)
        } else if times.is_wait_behind_probe(woken) {
            (&mut self.behind_probe, true)
        } else {
            return;
        };
        let found = if woken {
            &mut sums.woken
        } else {
            &mut sums.preempted
        };
        found.add(&span, pieces, sources, probe);
    }

    /// Judges the waits that were held back for late rows. Must be called after the last row.
    pub(crate) fn settle(
        &mut self,
        timeline: &mut Timeline,
        mut real_time: Option<&mut RealTime>,
        sources: &SourceTable,
    ) {
        self.date_until(Nanos(i64::MAX));
        for slot in 0..self.dated.len() {
            if let Some((history, _)) = timeline.history(slot) {
                self.judge_on(slot, history, real_time.as_deref_mut(), sources);
            }
        }
    }

    /// Returns the waits by thread ID, or `None` if the recording has no wake-ups. Must be called
    /// after [`Waits::settle`].
    pub(crate) fn by_thread(
        &self,
        header: &Header,
        sources: &SourceTable,
    ) -> Option<BTreeMap<i32, Tally>> {
        let attached = header.coverage.attached.contains(&Hook::SchedWaking);
        if !attached || self.edges == 0 {
            return None;
        }
        let mut threads = BTreeMap::new();
        self.found.woken.by_thread(sources, &mut threads);
        if header.coverage.events_lost() == 0 {
            self.found.preempted.by_thread(sources, &mut threads);
        }
        Some(threads)
    }

    /// Returns the statement, or `None` if the recording has no wake-ups. `limited` are the waits
    /// that limits on real-time threads caused. Must be called after [`Waits::settle`].
    pub(crate) fn finish(
        self,
        header: &Header,
        sources: &SourceTable,
        limited: Option<LimitedWaits>,
    ) -> Option<WaitStatement> {
        let attached = header.coverage.attached.contains(&Hook::SchedWaking);
        if !attached || self.edges == 0 {
            return None;
        }
        let preempted = header.coverage.events_lost() == 0;
        let sessions = Sessions::from_header(header, sources);
        let in_other_session = |waiter| sessions.differ(waiter, sources);
        let mut found = self.found.woken;
        found.merge(self.behind_probe.woken.only(in_other_session));
        if preempted {
            found.merge(self.found.preempted);
            found.merge(self.behind_probe.preempted.only(in_other_session));
        }
        // If events were lost or CPUs were not watched, a thread without a wake-up may have slept.
        let is_complete = preempted && header.machine.online.iter().count() <= header.cpus.len();
        let limited = limited.filter(|_| is_complete);
        let real_time = limited.map(|limited| limited.programs(sources, |_| true));
        let groups = Groups::from_header(header);
        let (programs, programs_left_out) = found.waiting(header, &|source| named(source, sources));
        let (time, count) = found.total();
        Some(WaitStatement {
            time,
            count,
            preempted,
            programs,
            programs_left_out,
            by_group: (!groups.is_empty()).then(|| found.by_group(header, sources, &groups)),
            behind: found.behind(sources),
            behind_ticktax: found.behind_ticktax(sources),
            real_time: real_time.unwrap_or_default(),
        })
    }
}

/// Returns whether rows are missing for more than a tenth of a wait, apart from rows too old for
/// `history`. Runs of the waiting thread may be among them.
fn rows_are_missing(wait: &Span, pieces: &[Piece], history: &History) -> bool {
    let dropped_until = history.forgotten().until.unwrap_or(wait.start);
    let expected = wait.end() - wait.start.max(dropped_until);
    let present: Nanos = pieces.iter().map(|piece| piece.end - piece.start).sum();
    present.0 * 10 < expected.0 * 9
}

/// Returns whether the unreported runs that overlap a wait of length `wait` make up too much of it.
/// `shared` are the lengths of the overlaps.
pub(crate) fn exceeds_part(shared: impl Iterator<Item = Nanos>, wait: Nanos) -> bool {
    let shared: Nanos = shared.sum();
    shared.0 * UNREPORTED_PART > wait.0
}

impl Thread {
    fn new(tid: i32) -> Self {
        Self {
            tid,
            wakes: Segments::new(),
            runs: Segments::new(),
            places: (0, 0),
        }
    }

    fn ran(&mut self, span: &Span, late: &mut Inserter) {
        let (begin, end) = (span.start, span.end());
        match self.runs.back_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => {
                late.insert(&mut self.runs, (begin, end), |run| run.0);
            }
        }
        // The runs of a thread that never waits are not judged. Only its recent runs are needed.
        while self.runs.len() > 1 && self.runs[1].1 < end - SETTLED - SETTLED {
            self.runs.pop_front();
        }
        // Keep the last wake-up before the oldest run too: its wait may be older than the oldest
        // run that is kept.
        let needed = self
            .runs
            .front()
            .map_or(end, |run| run.0.min(end - SETTLED - SETTLED));
        while self.wakes.len() > 1 && self.wakes[1] < needed {
            self.wakes.pop_front();
        }
    }

    /// Returns the start of the wait before the run that began at `until`, or `None` if no wait is
    /// known.
    fn wait_before(&mut self, until: Nanos) -> Option<Start> {
        let (woken_at, ran_at) = &mut self.places;
        let after = partition_near(&self.runs, *ran_at, |run| run.0 < until);
        *ran_at = after;
        let left = after.checked_sub(1).map(|last| self.runs[last].1);
        // If runs overlap, the data are inconsistent: a thread cannot be on two CPUs.
        if left.is_some_and(|left| left > until) {
            return None;
        }
        // The last wake-up counts. A waiting thread cannot be woken again, so between two wake-ups
        // it must have run without the kernel reporting the switch.
        let woken = partition_near(&self.wakes, *woken_at, |&at| at <= until);
        *woken_at = woken;
        let woken = woken.checked_sub(1).map(|last| self.wakes[last]);
        let woken = woken.filter(|&at| left.is_none_or(|left| at > left));
        match (woken, left) {
            (Some(at), _) => Some(Start::Woken(at)),
            (None, Some(left)) if left < until => Some(Start::Preempted(left)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
