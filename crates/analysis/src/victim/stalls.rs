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
//!   on input to the next. A worker that only waits at futexes has no requests.
//!
//! A thread's own work counts only if it is exceptional ([`Requests`]).
//!
//! # Order of rows
//! A thread's rows come from several CPUs, and so do those of the thread that woke it. A thread's
//! rows are therefore sorted, and processed when a row arrives that is a second later.
//!
//! # Memory
//! The rows of the last second, each thread's busy times in the last ten seconds, and sums by
//! source.

mod rank;
mod requests;
mod steps;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ticktax_model::kernel_words::system_call;
use ticktax_model::victim::{
    Blocked, BlockedOn, DelayPlace, EndedBy, HoldUp, OffCpu, Stall, StallMoment,
};
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

pub(crate) use self::rank::{is_other_rhythm, rank};
use self::requests::{Exceptional, Requests};
use self::steps::{Busy, Steps};
use super::statement::waker;
use super::wakers::{Waking, leads_to};
use crate::fast_map::FastMap;
use crate::ledger::tally::Tally;
use crate::timeline::ThreadId;

/// Longest delay with which rows from other CPUs arrive.
const SETTLED: Nanos = Nanos::from_secs(1);
/// Maximum number of long stalls kept per source, from which the period is computed.
const LONGEST: usize = 32;
/// Number of long stalls that are listed.
const LISTED: usize = 3;
/// Maximum number of sources kept that ended the waits of one source.
const ENDERS: usize = 64;
/// A wait for another thread counts as a stall if that thread was busy for at least this share of
/// it.
const BUSY: f64 = 0.5;
/// Minimum length of a wait for another thread that counts as a stall.
const SHORTEST: Nanos = Nanos::from_micros(100);

/// Minimum delay of a timer that counts as a stall.
const LATE_TIMER: Nanos = Nanos::from_millis(1);

/// What a thread did in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It ran its own code.
    Ran,
    /// It was in a long system call.
    Called,
    /// It handled a page fault or reclaimed memory.
    Faulted,
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
    /// Waits for other threads that count as stalls, by source.
    for_threads: FastMap<SourceId, Sum>,
    /// Delays of timers that their slack allowed, by source.
    slack: FastMap<SourceId, Sum>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: i32,
    steps: Steps,
    busy: Busy,
    requests: Requests,
    chain: Option<Chain>,
    /// Source of the latest row in which the thread ran.
    source: Option<SourceId>,
    /// Starts of the latest waits for other threads, each with the source that ended it.
    waits: VecDeque<(Nanos, SourceId)>,
}

/// Maximum number of waits for other threads that are kept per thread.
const WAITS: usize = 4_096;
/// Longest time from the end of a wait until the thread that held the lock waits in turn.
const HANDED_OVER: Nanos = Nanos::from_millis(1);

/// Consecutive waits for other threads, with hardly any running in between. A thread that waits for
/// a lock with a time-out tries again and again.
#[derive(Clone, Copy, Debug)]
struct Chain {
    span: Span,
    woken: Option<Waking>,
    waited: Nanos,
    /// Time that the thread has run since the last of these waits.
    ran: Nanos,
}

impl Chain {
    /// Longest time that the thread may run between two waits.
    const PAUSE: Nanos = Nanos::from_micros(100);
}

/// Waits of one source.
#[derive(Clone, Debug, Default)]
struct Sum {
    tally: Tally,
    /// The longest waits, longest first.
    longest: Vec<Span>,
    ended_by: BTreeMap<Option<SourceId>, Ended>,
}

/// Waits that one source ended.
#[derive(Clone, Debug, Default)]
struct Ended {
    time: Nanos,
    count: u64,
    /// Time that the source ran during these waits. `None` if it is unknown.
    ran: Option<Nanos>,
    calls: BTreeMap<SourceId, Nanos>,
}

impl Ended {
    fn add(&mut self, time: Nanos, during: Option<During>) {
        self.time += time;
        self.count += 1;
        if let Some(during) = during {
            *self.ran.get_or_insert_default() += during.ran;
            for (call, time) in during.calls {
                *self.calls.entry(call).or_default() += time;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.time += other.time;
        self.count += other.count;
        if let Some(ran) = other.ran {
            *self.ran.get_or_insert_default() += ran;
        }
        for (call, time) in other.calls {
            *self.calls.entry(call).or_default() += time;
        }
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
    fn add(&mut self, span: &Span, by: Option<SourceId>, during: Option<During>) {
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

    fn merge(&mut self, other: Self) {
        self.tally.merge(&other.tally);
        self.longest.extend(other.longest);
        for (by, ended) in other.ended_by {
            self.ended_by.entry(by).or_default().merge(ended);
        }
    }
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
        let entry = self.threads.entry(thread.tid).or_default();
        entry.pid = thread.pid;
        entry.steps.push(step);
        self.process(thread.tid, self.newest - SETTLED, sources, found);
    }

    /// Adds the wake-up that ended a wait, if its edge arrives after the wait's row.
    pub(super) fn woken(&mut self, tid: i32, waking: Waking) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.steps.woken(waking);
        }
    }

    /// Adds the row of a timer. It lasts from the time that the thread had asked for until it was
    /// woken, and its own time is the part that the timer's slack allowed.
    pub(super) fn timer(&mut self, thread: ThreadId, row: &Span, found: &mut Vec<Found>) {
        let span = Span {
            dur: row.self_time.min(row.dur),
            ..*row
        };
        if span.dur < LATE_TIMER {
            return;
        }
        self.threads.entry(thread.tid).or_default().pid = thread.pid;
        self.slack
            .entry(span.source)
            .or_default()
            .add(&span, None, None);
        found.push(Found {
            thread,
            span,
            kind: HoldUp::TimerSlack,
            woken: None,
            ran: None,
            counts: true,
        });
    }

    /// Processes all remaining rows. Must be called after the last row.
    pub(super) fn settle(&mut self, sources: &SourceTable, found: &mut Vec<Found>) {
        let mut tids: Vec<i32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.process(tid, Nanos(i64::MAX), sources, found);
            self.end_chain(tid, sources, found);
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
            thread.busy.add(&step);
            self.take(tid, &step, sources, found);
        }
    }

    fn take(&mut self, tid: i32, step: &Step, sources: &SourceTable, found: &mut Vec<Found>) {
        if let Doing::Blocked(on) = step.doing {
            let by = step.woken.map(|(_, by)| by);
            let during = self.during(tid, by, &step.span, sources);
            let ran = during.as_ref().map(|during| during.ran);
            self.blocked
                .entry(step.span.source)
                .or_default()
                .add(&step.span, by, during);
            if let Some(kind) = on.stall() {
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
        match (step.doing, step.woken) {
            (Doing::Ran, _) => thread.source = Some(step.span.source),
            (Doing::Blocked(BlockedOn::Thread), Some((_, by))) => {
                thread.waits.push_back((step.span.start, by));
                if thread.waits.len() > WAITS {
                    thread.waits.pop_front();
                }
            }
            _ => {}
        }
        let mut ends = false;
        match step.doing {
            Doing::Blocked(BlockedOn::Thread) => match &mut thread.chain {
                Some(chain) => {
                    chain.span.dur = step.span.end() - chain.span.start;
                    chain.waited += step.span.dur;
                    chain.woken = step.woken;
                    chain.ran = Nanos::ZERO;
                }
                None => {
                    thread.chain = Some(Chain {
                        span: step.span,
                        woken: step.woken,
                        waited: step.span.dur,
                        ran: Nanos::ZERO,
                    });
                }
            },
            Doing::Ran | Doing::Called | Doing::Faulted => {
                if let Some(chain) = &mut thread.chain {
                    chain.ran += step.span.dur;
                    ends = chain.ran > Chain::PAUSE;
                }
            }
            Doing::Waited => {}
            Doing::Blocked(_) => ends = thread.chain.is_some(),
        }
        if ends {
            self.end_chain(tid, sources, found);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.requests.step(step);
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
        let in_request = thread.requests.is_within();
        let by = chain.woken.map(|(_, by)| by);
        let is_thread = |by: &SourceId| sources.get(*by).thread.is_some();
        let by = by
            .filter(is_thread)
            .or_else(|| self.handed_over(tid, chain.span.end(), sources));
        let Some(during) = self.during(tid, by, &chain.span, sources) else {
            return;
        };
        let counts =
            in_request && chain.waited >= SHORTEST && during.busy.share_of(chain.span.dur) >= BUSY;
        let ran = Some(during.ran);
        if counts {
            self.for_threads.entry(chain.span.source).or_default().add(
                &chain.span,
                by,
                Some(during),
            );
        }
        found.push(Found {
            thread: self.id(tid),
            span: chain.span,
            kind: HoldUp::OwnThread,
            woken: by.map(|by| (chain.span.end(), by)),
            ran,
            counts,
        });
    }

    /// Returns the thread that stopped running around `time` until thread `tid` woke it.
    fn handed_over(&self, tid: i32, time: Nanos, sources: &SourceTable) -> Option<SourceId> {
        let pid = self.threads.get(&tid)?.pid;
        let (from, to) = (time - HANDED_OVER, time + HANDED_OVER);
        let woken_by_it = |(start, by): (Nanos, SourceId)| {
            let by = sources.get(by).thread.as_ref();
            from <= start && start <= to && by.is_some_and(|thread| thread.tid == tid)
        };
        let others = self.threads.iter();
        let others = others.filter(|(other, thread)| **other != tid && thread.pid == pid);
        let handed = others.filter(|(_, thread)| {
            let waits = thread.waits.iter().rev().copied();
            let recent = waits.take_while(|(start, _)| *start >= from);
            recent.chain(thread.steps.waits()).any(woken_by_it)
        });
        let found = handed.min_by_key(|(other, _)| **other)?;
        found.1.source
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

    /// Sums up the stalls. `pids` and `is_reported` select processes and threads. `begin` is the
    /// start of the recording.
    pub(super) fn finish(
        self,
        sources: &SourceTable,
        begin: Nanos,
        pids: &BTreeSet<i32>,
        is_reported: &dyn Fn(i32) -> bool,
    ) -> Finished {
        let is_own = |source: SourceId| {
            let thread = sources.get(source).thread.as_ref();
            thread.is_some_and(|thread| pids.contains(&thread.pid) && is_reported(thread.tid))
        };
        let mut places: BTreeMap<Place, Sum> = BTreeMap::new();
        let in_order = |sums: FastMap<SourceId, Sum>| -> BTreeMap<SourceId, Sum> {
            let own = sums.into_iter().filter(|(source, _)| is_own(*source));
            own.collect()
        };
        for (source, sum) in in_order(self.blocked) {
            let detail = &sources.get(source).detail;
            if let Some(place) = OffCpu::parse(detail).and_then(|off| Place::new(&off)) {
                places.entry(place).or_default().merge(sum);
            }
        }
        let names = Names {
            sources,
            begin,
            pids,
        };
        let mut blocked: Vec<Blocked> = places
            .into_iter()
            .map(|(place, sum)| names.blocked(place, sum))
            .collect();
        blocked.sort_by_key(|place| Reverse(place.time));
        let mut for_threads = Sum::default();
        let mut calls: BTreeMap<String, Nanos> = BTreeMap::new();
        for (source, sum) in in_order(self.for_threads) {
            let off = OffCpu::parse(&sources.get(source).detail);
            if let Some(call) = off.and_then(|off| off.syscall) {
                *calls.entry(call.to_owned()).or_default() += sum.tally.time;
            }
            for_threads.merge(sum);
        }
        let mut stalls = Vec::new();
        let mut slack = Sum::default();
        for sum in in_order(self.slack).into_values() {
            slack.merge(sum);
        }
        if slack.tally.count > 0 {
            slack.ended_by.clear();
            stalls.push(names.stall(HoldUp::TimerSlack, Vec::new(), slack));
        }
        if for_threads.tally.count > 0 {
            stalls.push(names.stall(HoldUp::OwnThread, most_first(calls), for_threads));
        }
        let mut own: BTreeMap<HoldUp, (BTreeMap<String, Nanos>, Sum)> = BTreeMap::new();
        let mut threads: Vec<(i32, Thread)> = self.threads.into_iter().collect();
        threads.sort_by_key(|(tid, _)| *tid);
        let reported = |tid: i32, pid: i32| pids.contains(&pid) && is_reported(tid);
        threads.retain(|(tid, thread)| reported(*tid, thread.pid));
        let mut work = Vec::new();
        for (_, thread) in threads {
            for exceptional in thread.requests.finish() {
                let Exceptional { kind, span } = exceptional;
                work.push(exceptional);
                let (calls, sum) = own.entry(kind).or_default();
                if let Some(call) = system_call(&sources.get(span.source).detail) {
                    *calls.entry(call.to_owned()).or_default() += span.dur;
                }
                sum.add(&span, None, None);
            }
        }
        stalls.extend(own.into_iter().map(|(kind, (calls, mut sum))| {
            sum.ended_by.clear();
            names.stall(kind, most_first(calls), sum)
        }));
        Finished {
            blocked,
            stalls,
            work,
        }
    }
}

/// The stalls of a whole recording.
#[derive(Debug)]
pub(super) struct Finished {
    /// Places where the threads were blocked, most time first.
    pub(super) blocked: Vec<Blocked>,
    /// Stalls that are neither waits for a CPU nor at a place where a wait always is a stall.
    pub(super) stalls: Vec<Stall>,
    /// Exceptional work of the threads themselves, which `stalls` includes.
    pub(super) work: Vec<Exceptional>,
}

/// Returns the names with the most time first.
fn most_first(times: BTreeMap<String, Nanos>) -> Vec<String> {
    let mut names: Vec<(String, Nanos)> = times.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    names.into_iter().map(|(name, _)| name).collect()
}

/// A place in the kernel where threads wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    on: BlockedOn,
    syscall: Option<String>,
    function: Option<String>,
    caller: Option<String>,
}

impl Place {
    fn new(off: &OffCpu<'_>) -> Option<Self> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        Some(Self {
            on: super::places::place(off)?,
            syscall: owned(off.syscall),
            function: owned(off.function),
            caller: owned(off.caller),
        })
    }
}

/// Returns the place of a stall in a delay whose row has this source.
pub(super) fn delay_place(kind: HoldUp, source: SourceId, sources: &SourceTable) -> DelayPlace {
    let detail = &sources.get(source).detail;
    let off = OffCpu::parse(detail);
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let syscall = off.map_or_else(|| system_call(detail), |off| off.syscall);
    DelayPlace {
        kind,
        syscall: owned(syscall),
        function: owned(off.and_then(|off| off.function)),
    }
}

/// Names of sources, as the statement shows them.
struct Names<'a> {
    sources: &'a SourceTable,
    begin: Nanos,
    pids: &'a BTreeSet<i32>,
}

impl Names<'_> {
    fn blocked(&self, place: Place, sum: Sum) -> Blocked {
        Blocked {
            on: place.on,
            syscall: place.syscall,
            function: place.function,
            caller: place.caller,
            time: sum.tally.time,
            count: sum.tally.count,
            max: sum.tally.longest,
            longest: self.moments(sum.longest, LONGEST),
            ended_by: self.enders(sum.ended_by),
        }
    }

    fn stall(&self, kind: HoldUp, syscalls: Vec<String>, sum: Sum) -> Stall {
        Stall {
            kind,
            syscalls,
            time: sum.tally.time,
            count: sum.tally.count,
            max: sum.tally.longest,
            period: None,
            frames: 0,
            dropped: 0,
            late: Nanos::ZERO,
            ended_by: self.enders(sum.ended_by),
            longest: self.moments(sum.longest, LONGEST),
        }
    }

    fn moments(&self, mut spans: Vec<Span>, most: usize) -> Vec<StallMoment> {
        spans.sort_by_key(|span| (Reverse(span.dur), span.start));
        spans.truncate(most);
        let moment = |span: Span| {
            let source = self.sources.get(span.source);
            StallMoment {
                thread: source.name.to_string(),
                tid: source.thread.as_ref().map_or(0, |thread| thread.tid),
                at: (span.start - self.begin).max(Nanos::ZERO),
                length: span.dur,
            }
        };
        spans.into_iter().map(moment).collect()
    }

    /// Lists the sources that ended waits. Sources of one thread share an entry.
    fn enders(&self, by_source: BTreeMap<Option<SourceId>, Ended>) -> Vec<EndedBy> {
        type Thread = Option<(i32, i32)>;
        let mut by_name: BTreeMap<(String, Thread), Ended> = BTreeMap::new();
        for (source, ended) in by_source {
            let Some(source) = source else {
                continue;
            };
            let thread = self.sources.get(source).thread.as_ref();
            let thread = thread.map(|thread| (thread.pid, thread.tid));
            let name = (waker(source, self.sources), thread);
            by_name.entry(name).or_default().merge(ended);
        }
        let mut all: Vec<EndedBy> = by_name
            .into_iter()
            .map(|((name, thread), ended)| {
                let pid = thread.map(|(pid, _)| pid);
                let ran = ended.ran;
                let most = ended.calls.iter().max_by_key(|(_, time)| **time);
                let most = most.filter(|&(_, &time)| ran.is_some_and(|ran| time + time > ran));
                let call = most.and_then(|(call, _)| system_call(&self.sources.get(*call).detail));
                EndedBy {
                    name,
                    pid,
                    tid: thread.map(|(_, tid)| tid),
                    same_program: pid.is_some_and(|pid| self.pids.contains(&pid)),
                    time: ended.time,
                    count: ended.count,
                    ran,
                    syscall: call.map(str::to_owned),
                }
            })
            .collect();
        all.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        all
    }
}

/// Returns whether a wake-up ended the wait `span`.
fn ended(waking: Waking, span: &Span) -> bool {
    leads_to(waking, span.end()) && waking.0 >= span.start
}
