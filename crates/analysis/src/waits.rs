//! Who waited for a CPU behind whom, of all threads of a machine.
//!
//! # What a wait is
//! A thread waits from the moment at which something woke it, or at which it lost its CPU without having
//! gone to sleep, until it has a CPU. A wake-up is an edge. A thread that comes back without a wake-up since
//! it left did not sleep: it was preempted. Where events were lost, an edge may have been, and only waits
//! that begin with one are told. A wait that is not over as the recording ends, or that began before it, is not
//! told either.
//!
//! Whoever is woken has the CPU of ticktax's spinning probe at once, as it would have an idle one, so that a thread
//! that comes back after the probe had its CPU for long was asleep, and its wake-up is missing. Not so where CPU
//! time is shared between groups by session first (autogroups): there a thread of another session than the probe's
//! waits behind it as behind any program, and such waits are told.
//!
//! Nor is a wait told in which a thread ran whose switch the kernel did not report: it may be the one that
//! waited.
//!
//! # In which order rows come
//! Edges and rows of other CPUs may come late, so how the wait for a run began is looked up a second after that
//! run began, by whatever row comes then. Wake-ups that come later than that are taken for none. Who ran
//! meanwhile is looked up with the next row of that CPU, which may be long after.
//!
//! # Memory
//! For each thread what happened to it in the last two seconds; the sums by waiter and by who ran meanwhile.

mod probe;

use std::collections::{BTreeMap, HashMap, VecDeque};

use ticktax_model::hook::Hook;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use self::probe::{Had, Sessions};
use crate::ledger::tally::Tally;
use crate::real_time::{Limits, RealTime};
use crate::timeline::{Event, EventKind, History, Occupant, Timeline};
use crate::victim::named;

/// By so much a row of another CPU may come late.
const SETTLED: Nanos = Nanos::from_secs(1);
/// Stretches of unreported threads that are kept; waits that begin before the end of one that is not are
/// not told.
const UNREPORTED: usize = 4_096;
/// Programs that are told.
const PROGRAMS: usize = 20;
/// Of each, those that it waited for.
const BEHIND: usize = 4;

/// Takes a timeline's events and says who waited behind whom.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    threads: HashMap<i32, Recent>,
    /// Runs of which it is not known yet how the wait before them began, in the order in which their rows came.
    runs: VecDeque<Run>,
    /// The latest end of a row of a thread.
    newest: Nanos,
    /// Waits before runs that are not judged yet, by CPU.
    dated: Vec<VecDeque<Wait>>,
    found: Both,
    /// Those in which the probe had the CPU for long.
    beside_probe: Both,
    edges: u64,
    /// When threads ran whose switches were not reported, on any CPU.
    unreported: VecDeque<(Nanos, Nanos)>,
    /// The end of the last of those that are not kept any more.
    forgotten: Nanos,
    /// Where the machine's settings are known.
    real_time: Option<RealTime>,
}

/// What happened to a thread lately, in order of time.
#[derive(Debug, Default)]
struct Recent {
    wakes: VecDeque<Nanos>,
    /// When it got a CPU, and when it left it.
    runs: VecDeque<(Nanos, Nanos)>,
}

/// A thread that got a CPU.
#[derive(Clone, Copy, Debug)]
struct Run {
    slot: usize,
    tid: i32,
    source: SourceId,
    begin: Nanos,
    after_idle: bool,
}

/// What a thread did before it got a CPU: it waited, where others had that CPU.
#[derive(Clone, Copy, Debug)]
struct Wait {
    run: Run,
    begin: Begin,
}

/// The waits that were found, by how they began.
#[derive(Debug, Default)]
struct Both {
    woken: Found,
    preempted: Found,
}

/// The waits of one sort that were found.
#[derive(Debug, Default)]
struct Found {
    /// By who waited, with the begin of the longest.
    waiters: BTreeMap<SourceId, (Tally, Nanos)>,
    /// By who waited and who ran.
    pairs: BTreeMap<(SourceId, SourceId), Nanos>,
}

/// How a wait began.
#[derive(Clone, Copy, Debug)]
enum Begin {
    Woken(Nanos),
    Preempted(Nanos),
}

impl Begin {
    fn at(self) -> Nanos {
        let (Self::Woken(at) | Self::Preempted(at)) = self;
        at
    }
}

impl Waits {
    /// Nothing yet of `machine`.
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            real_time: Limits::of(machine).map(RealTime::new),
            ..Self::default()
        }
    }

    /// Takes an event of a CPU with this past.
    pub(crate) fn event(&mut self, event: &Event<'_>, history: &History) {
        if let Some(real_time) = &mut self.real_time {
            real_time.event(event);
        }
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), onset) => {
                let Some(thread) = on.thread else {
                    self.unreported(event.span);
                    return;
                };
                let span = event.span;
                self.newest = self.newest.max(span.end());
                // Their own waits are left out, and what they may have had is in the CPU's past.
                if !matches!(on.owner, Owner::Probe | Owner::Tool) {
                    self.threads.entry(thread.tid).or_default().ran(span);
                    let may_be_held = || {
                        let real_time = self.real_time.as_ref();
                        real_time.is_some_and(|it| it.left(event.slot, thread.tid, span.start))
                    };
                    // On a CPU that idled nobody was before it, but the kernel may have kept it from that.
                    if !onset.continues && (!onset.after_idle || may_be_held()) {
                        self.runs.push_back(Run {
                            slot: event.slot,
                            tid: thread.tid,
                            source: span.source,
                            begin: span.start,
                            after_idle: onset.after_idle,
                        });
                    }
                }
                self.date_until(self.newest - SETTLED);
                self.settle(event.slot, history, event.sources);
            }
            EventKind::Edge(edge) => self.edge(edge),
            _ => {}
        }
    }

    /// A thread ran whose switch the kernel did not report: whichever it was, it did not wait then.
    fn unreported(&mut self, span: &Span) {
        if self.unreported.len() == UNREPORTED {
            let oldest = self.unreported.pop_front();
            self.forgotten = oldest.map_or(self.forgotten, |(_, end)| end.max(self.forgotten));
        }
        self.unreported.push_back((span.start, span.end()));
    }

    /// Whether a thread that waited from `begin` to `end` may have run meanwhile, unreported.
    fn may_have_run(&self, begin: Nanos, end: Nanos) -> bool {
        let mut unreported = self.unreported.iter();
        begin < self.forgotten || unreported.any(|&(from, to)| from < end && to > begin)
    }

    fn edge(&mut self, edge: &Edge) {
        let Effect::Woke(tid) = edge.effect else {
            return;
        };
        self.edges += 1;
        let wakes = &mut self.threads.entry(tid).or_default().wakes;
        // A thread of a CPU that is not watched is woken for ever, and never runs. What it was woken for before it
        // was woken again, longer ago than runs are judged, is of no use.
        let needed = edge.span.start - SETTLED - SETTLED;
        while wakes.len() > 1 && wakes[1] < needed {
            wakes.pop_front();
        }
        insert(wakes, edge.span.start);
    }

    /// Finds out how the waits for runs that began before `until` began.
    fn date_until(&mut self, until: Nanos) {
        while let Some(run) = self.runs.pop_front_if(|run| run.begin < until) {
            let recent = self.threads.get(&run.tid);
            let Some(begin) = recent.and_then(|recent| recent.wait_before(run.begin)) else {
                continue;
            };
            if self.may_have_run(begin.at(), run.begin) {
                continue;
            }
            if run.slot >= self.dated.len() {
                self.dated.resize_with(run.slot + 1, VecDeque::new);
            }
            self.dated[run.slot].push_back(Wait { run, begin });
        }
    }

    /// Judges the waits of known begin for the CPU in `slot`, which has this past.
    fn settle(&mut self, slot: usize, history: &History, sources: &SourceTable) {
        while let Some(wait) = self.dated.get_mut(slot).and_then(VecDeque::pop_front) {
            self.judge(slot, wait, history, sources);
        }
    }

    fn judge(&mut self, slot: usize, wait: Wait, history: &History, sources: &SourceTable) {
        let Wait { run, begin } = wait;
        let at = begin.at();
        let span = Span {
            cpu: Cpu(u32::try_from(slot).unwrap_or(u32::MAX)),
            start: at,
            dur: run.begin - at,
            self_time: run.begin - at,
            source: run.source,
        };
        let woken = matches!(begin, Begin::Woken(_));
        if let Some(real_time) = self.real_time.as_mut().filter(|it| it.wants(span.dur)) {
            let pieces = history.on_cpu_within(&span);
            real_time.waited((slot, run.tid, woken), &span, pieces, sources);
        }
        if run.after_idle {
            return;
        }
        let had = Had::during(&span, history, sources);
        let (both, probe) = if had.is_wait() {
            (&mut self.found, false)
        } else if had.is_wait_beside_probe(woken) {
            (&mut self.beside_probe, true)
        } else {
            return;
        };
        let found = if woken {
            &mut both.woken
        } else {
            &mut both.preempted
        };
        found.add(&span, history, sources, probe);
    }

    /// Who waited behind whom; `None` where the recording does not tell. No more rows come.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        sources: &SourceTable,
        timeline: &mut Timeline,
    ) -> Option<WaitStatement> {
        let attached = header.coverage.attached.contains(&Hook::SchedWaking);
        if !attached || self.edges == 0 {
            return None;
        }
        self.date_until(Nanos(i64::MAX));
        for slot in 0..self.dated.len() {
            if let Some((history, _)) = timeline.history(slot) {
                self.settle(slot, history, sources);
            }
        }
        let preempted = header.coverage.events_lost() == 0;
        let sessions = Sessions::of(header, sources);
        let Both {
            woken: mut found,
            preempted: lost_it,
        } = self.found;
        found.merge(
            self.beside_probe
                .woken
                .only(|waiter| sessions.differ(waiter, sources)),
        );
        if preempted {
            found.merge(lost_it);
            let beside = self.beside_probe.preempted;
            found.merge(beside.only(|waiter| sessions.differ(waiter, sources)));
        }
        let begin = header.begin().unwrap_or_default();
        let mut told = found.statement(preempted, begin, sources);
        // Who lost its CPU and was not woken may have slept where events were lost, or CPUs not watched.
        let whole = preempted && header.machine.online.iter().count() <= header.books.len();
        if let Some(real_time) = self.real_time.filter(|_| whole) {
            told.real_time = real_time.finish(header).programs(sources, |_| true);
        }
        Some(told)
    }
}

/// Puts a time in its place; times mostly come in order.
fn insert(times: &mut VecDeque<Nanos>, at: Nanos) {
    let mut place = times.len();
    while place > 0 && times[place - 1] > at {
        place -= 1;
    }
    times.insert(place, at);
}

impl Recent {
    /// The thread had a CPU for so long.
    fn ran(&mut self, span: &Span) {
        let (begin, end) = (span.start, span.end());
        match self.runs.back_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            Some(last) if last.0 > begin => {
                let place = self.runs.partition_point(|run| run.0 < begin);
                self.runs.insert(place, (begin, end));
            }
            _ => self.runs.push_back((begin, end)),
        }
        // Of a thread that never waits nothing is judged: all but the last second is of no use.
        while self.runs.len() > 1 && self.runs[1].1 < end - SETTLED - SETTLED {
            self.runs.pop_front();
        }
        // A wake-up from before the oldest run that is kept, and nothing else: a wait that began with it may
        // be longer than any time that is kept.
        let needed = self
            .runs
            .front()
            .map_or(end, |run| run.0.min(end - SETTLED - SETTLED));
        while self.wakes.len() > 1 && self.wakes[1] < needed {
            self.wakes.pop_front();
        }
    }

    /// How the wait for the CPU that the thread got at `until` began; `None` where there was none that
    /// is known.
    fn wait_before(&self, until: Nanos) -> Option<Begin> {
        let after = self.runs.partition_point(|run| run.0 < until);
        let left = after.checked_sub(1).map(|last| self.runs[last].1);
        // A thread is on one CPU at a time.
        if left.is_some_and(|left| left > until) {
            return None;
        }
        // The last: who waits already is not woken again, so between two wake-ups it ran, and the kernel
        // did not report that switch.
        let mut wakes = self.wakes.iter().rev().copied();
        let woken = wakes.find(|&at| at <= until && left.is_none_or(|left| at > left));
        match (woken, left) {
            (Some(at), _) => Some(Begin::Woken(at)),
            (None, Some(left)) if left < until => Some(Begin::Preempted(left)),
            _ => None,
        }
    }
}

impl Found {
    /// Adds a wait; who had the CPU meanwhile may have been the probe.
    fn add(&mut self, span: &Span, history: &History, sources: &SourceTable, probe: bool) {
        let (tally, at) = self.waiters.entry(span.source).or_default();
        if span.dur > tally.longest {
            *at = span.start;
        }
        tally.add(span.dur, span.dur);
        let pieces = history.on_cpu_within(span).filter(|piece| {
            let source = sources.get(piece.source);
            source.kind != Kind::Idle && (probe || source.owner != Owner::Probe)
        });
        for piece in pieces {
            let time = piece.end - piece.start;
            *self.pairs.entry((span.source, piece.source)).or_default() += time;
        }
    }

    /// Those of some waiters.
    fn only(mut self, wanted: impl Fn(SourceId) -> bool) -> Self {
        self.waiters.retain(|&waiter, _| wanted(waiter));
        self.pairs.retain(|&(waiter, _), _| wanted(waiter));
        self
    }

    fn merge(&mut self, other: Self) {
        for (source, (tally, at)) in other.waiters {
            let (sum, begin) = self.waiters.entry(source).or_default();
            if tally.longest > sum.longest {
                *begin = at;
            }
            sum.merge(&tally);
        }
        for (pair, time) in other.pairs {
            *self.pairs.entry(pair).or_default() += time;
        }
    }

    fn statement(&self, preempted: bool, begin: Nanos, sources: &SourceTable) -> WaitStatement {
        let mut all = Tally::default();
        let mut programs: BTreeMap<String, WaitingProgram> = BTreeMap::new();
        for (&source, (tally, at)) in &self.waiters {
            all.merge(tally);
            let (name, _, pid) = named(source, sources);
            let program = programs.entry(name.clone()).or_default();
            program.name = name;
            let pid = pid.filter(|pid| !program.pids.contains(pid));
            program.pids.extend(pid);
            program.time += tally.time;
            program.count += tally.count;
            if tally.longest > program.max {
                (program.max, program.max_at) = (tally.longest, *at - begin);
            }
        }
        let mut behind: BTreeMap<String, BTreeMap<String, WaitedFor>> = BTreeMap::new();
        let mut costs: BTreeMap<(String, Option<i32>), WaitedFor> = BTreeMap::new();
        for (&(waiter, source), &time) in &self.pairs {
            let (name, kind, pid) = named(source, sources);
            let new = || WaitedFor {
                name: name.clone(),
                kind,
                pids: Vec::new(),
                time: Nanos::ZERO,
            };
            let of_waiter = behind.entry(named(waiter, sources).0).or_default();
            let cost = costs.entry((name.clone(), pid));
            for sum in [
                of_waiter.entry(name.clone()).or_insert_with(new),
                cost.or_insert_with(new),
            ] {
                let pid = pid.filter(|pid| !sum.pids.contains(pid));
                sum.pids.extend(pid);
                sum.time += time;
            }
        }
        for (name, of_waiter) in behind {
            if let Some(program) = programs.get_mut(&name) {
                program.behind = costliest(of_waiter.into_values(), BEHIND);
            }
        }
        let mut programs: Vec<WaitingProgram> = programs.into_values().collect();
        programs.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        let left_out = programs.len().saturating_sub(PROGRAMS);
        programs.truncate(PROGRAMS);
        WaitStatement {
            time: all.time,
            count: all.count,
            preempted,
            programs,
            programs_left_out: left_out as u64,
            behind: costliest(costs.into_values(), PROGRAMS),
            real_time: Vec::new(),
        }
    }
}

/// Those that were waited for longest.
fn costliest(all: impl Iterator<Item = WaitedFor>, most: usize) -> Vec<WaitedFor> {
    let mut all: Vec<WaitedFor> = all.collect();
    all.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    all.truncate(most);
    all
}

#[cfg(test)]
mod tests;
