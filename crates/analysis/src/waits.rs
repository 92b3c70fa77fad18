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
//! If the kernel did not report the switch to a thread, waits during that thread's run are not
//! reported, because the thread that waited may be the one that ran.
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

use std::collections::BTreeMap;

use ticktax_model::hook::Hook;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::waits::{GroupWaits, WaitStatement, WaitedFor, WaitingProgram};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use self::probe::{CpuTimes, Sessions};
use crate::fast_map::FastMap;
use crate::groups::Groups;
use crate::late::{Inserter, partition_near};
use crate::ledger::tally::Tally;
use crate::names::named;
use crate::real_time::{Limits, RealTime};
use crate::segments::Segments;
use crate::timeline::{Event, EventKind, History, Occupant, Piece, Timeline};

/// Longest delay with which rows from other CPUs arrive.
const SETTLED: Nanos = Nanos::from_secs(1);
/// Maximum number of unreported threads' runs kept. If a run was dropped, waits that begin before
/// it ended are not reported.
const UNREPORTED: usize = 4_096;
/// Maximum number of programs reported.
const PROGRAMS: usize = 20;
/// Maximum number of culprits reported per program.
const BEHIND: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Waits {
    threads: FastMap<i32, Recent>,
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
    /// Runs, on any CPU, of threads whose switches were not reported.
    unreported: Segments<(Nanos, Nanos)>,
    /// Latest end of a run that was dropped from `unreported`.
    forgotten: Nanos,
    /// Waits caused by limits on real-time threads. `None` if the machine's settings are unknown,
    /// or if they never hold back real-time threads.
    real_time: Option<RealTime>,
}

/// A thread's recent wake-ups and runs, in order.
#[derive(Debug, Default)]
struct Recent {
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
    tid: i32,
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

#[derive(Debug, Default)]
struct WaitSums {
    /// Waits by the source that waited, each with the start of its longest wait.
    waiters: FastMap<SourceId, (Tally, Nanos)>,
    /// Waiting time by the source that waited and the source that ran.
    pairs: FastMap<(SourceId, SourceId), Nanos>,
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
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            real_time: Limits::from_machine(machine).map(RealTime::new),
            ..Self::default()
        }
    }

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
                // Waits of ticktax's own threads do not count. Other threads can still wait behind
                // them, because their runs are in the CPU's history.
                if !matches!(on.owner, Owner::Probe | Owner::Tool) {
                    let recent = self.threads.entry(thread.tid).or_default();
                    recent.ran(span, &mut self.late);
                    let may_be_held = || {
                        let limits = self.real_time.as_ref();
                        limits.is_some_and(|limits| limits.left(event.slot, thread.tid, span.start))
                    };
                    // On an idle CPU, nothing delays a thread except a limit on real-time threads.
                    if !onset.continues && (!onset.after_idle || may_be_held()) {
                        self.runs.push_back(RunStart {
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

    /// Notes the run of a thread whose switch the kernel did not report, so that it may have been
    /// any thread.
    fn unreported(&mut self, span: &Span) {
        if self.unreported.len() == UNREPORTED {
            let oldest = self.unreported.pop_front();
            self.forgotten = oldest.map_or(self.forgotten, |(_, end)| end.max(self.forgotten));
        }
        self.unreported.push_back((span.start, span.end()));
    }

    /// Returns whether a thread that waited from `begin` to `end` may have had an unreported run in
    /// that time.
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
            let recent = self.threads.get_mut(&run.tid);
            let Some(start) = recent.and_then(|recent| recent.wait_before(run.begin)) else {
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
    fn settle(&mut self, slot: usize, history: &History, sources: &SourceTable) {
        while let Some(wait) = self.dated.get_mut(slot).and_then(Segments::pop_front) {
            self.judge(slot, wait, history, sources);
        }
    }

    fn judge(&mut self, slot: usize, wait: Wait, history: &History, sources: &SourceTable) {
        let Wait { run, start } = wait;
        let at = start.at();
        let span = Span {
            cpu: Cpu(u32::try_from(slot).unwrap_or(u32::MAX)),
            start: at,
            dur: run.begin - at,
            self_time: run.begin - at,
            source: run.source,
        };
        let woken = matches!(start, Start::Woken(_));
        let limits = self.real_time.as_mut();
        let limits = limits.filter(|limits| limits.wants(span.dur));
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
            limits.waited(slot, run.tid, woken, &span, pieces, sources);
        }
        if run.after_idle {
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

    /// Returns the statement, or `None` if the recording has no wake-ups. Must be called after the
    /// last row.
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
        let sessions = Sessions::from_header(header, sources);
        let in_other_session = |waiter| sessions.differ(waiter, sources);
        let mut found = self.found.woken;
        found.merge(self.behind_probe.woken.only(in_other_session));
        if preempted {
            found.merge(self.found.preempted);
            found.merge(self.behind_probe.preempted.only(in_other_session));
        }
        let begin = header.begin().unwrap_or_default();
        let mut statement = found.statement(preempted, begin, sources);
        let groups = Groups::from_header(header);
        statement.by_group = (!groups.is_empty()).then(|| found.by_group(begin, sources, &groups));
        // If events were lost or CPUs were not watched, a thread without a wake-up may have slept.
        let is_complete = preempted && header.machine.online.iter().count() <= header.cpus.len();
        if let Some(real_time) = self.real_time.filter(|_| is_complete) {
            statement.real_time = real_time
                .finish(header, sources)
                .programs(sources, |_| true);
        }
        Some(statement)
    }
}

impl Recent {
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

impl WaitSums {
    /// Adds a wait during which the `pieces` ran. Time during which the probe ran counts only if
    /// `probe` is set.
    fn add(&mut self, span: &Span, pieces: &[Piece], sources: &SourceTable, probe: bool) {
        let (tally, at) = self.waiters.entry(span.source).or_default();
        if span.dur > tally.longest {
            *at = span.start;
        }
        tally.add(span.dur, span.dur);
        let pieces = pieces.iter().filter(|piece| {
            let source = sources.get(piece.source);
            source.kind != Kind::Idle && (probe || source.owner != Owner::Probe)
        });
        for piece in pieces {
            let time = piece.end - piece.start;
            *self.pairs.entry((span.source, piece.source)).or_default() += time;
        }
    }

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
        for (tally, _) in self.waiters.values() {
            all.merge(tally);
        }
        let own = self
            .pairs
            .iter()
            .filter(|((_, ran), _)| matches!(sources.get(*ran).owner, Owner::Probe | Owner::Tool));
        let behind_ticktax = own.map(|(_, &time)| time).sum();
        let mut costs: BTreeMap<(String, Option<i32>), WaitedFor> = BTreeMap::new();
        for ((_, source), &time) in sorted(&self.pairs) {
            let (name, kind, pid) = named(source, sources);
            let cost = costs.entry((name.clone(), pid));
            add_culprit(cost.or_insert_with(|| culprit(name, kind)), pid, time);
        }
        let (programs, left_out) = self.waiting(begin, &|source| named(source, sources));
        WaitStatement {
            time: all.time,
            count: all.count,
            preempted,
            programs,
            programs_left_out: left_out,
            by_group: None,
            behind: costliest(costs.into_values(), PROGRAMS),
            behind_ticktax,
            real_time: Vec::new(),
        }
    }

    /// Returns the waits by group. A source without a group has an entry under its own name.
    fn by_group(&self, begin: Nanos, sources: &SourceTable, groups: &Groups<'_>) -> GroupWaits {
        let (groups, groups_left_out) = self.waiting(begin, &|source| {
            let (name, kind, pid) = named(source, sources);
            let group = pid.and_then(|pid| groups.of(pid));
            (group.map_or(name, ToString::to_string), kind, pid)
        });
        GroupWaits {
            groups,
            groups_left_out,
        }
    }

    /// Sums the waits by the name that `named` gives to each source. Returns the largest sums and
    /// the number of the others.
    fn waiting(&self, begin: Nanos, named: &Named<'_>) -> (Vec<WaitingProgram>, u64) {
        let mut programs: BTreeMap<String, WaitingProgram> = BTreeMap::new();
        for (source, (tally, at)) in sorted(&self.waiters) {
            let (name, _, pid) = named(source);
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
        for ((waiter, source), &time) in sorted(&self.pairs) {
            let (name, kind, pid) = named(source);
            let culprits = behind.entry(named(waiter).0).or_default();
            let sum = culprits.entry(name.clone());
            add_culprit(sum.or_insert_with(|| culprit(name, kind)), pid, time);
        }
        for (name, culprits) in behind {
            if let Some(program) = programs.get_mut(&name) {
                program.behind = costliest(culprits.into_values(), BEHIND);
            }
        }
        let mut programs: Vec<WaitingProgram> = programs.into_values().collect();
        programs.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        let left_out = programs.len().saturating_sub(PROGRAMS);
        programs.truncate(PROGRAMS);
        (programs, left_out as u64)
    }
}

fn sorted<K: Copy + Ord, V>(map: &FastMap<K, V>) -> Vec<(K, &V)> {
    let mut entries: Vec<(K, &V)> = map.iter().map(|(&key, value)| (key, value)).collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
}

/// Returns the name under which a source's waits are summed, its kind and its process id.
type Named<'n> = dyn Fn(SourceId) -> (String, Kind, Option<i32>) + 'n;

fn culprit(name: String, kind: Kind) -> WaitedFor {
    WaitedFor {
        name,
        kind,
        pids: Vec::new(),
        time: Nanos::ZERO,
    }
}

fn add_culprit(sum: &mut WaitedFor, pid: Option<i32>, time: Nanos) {
    let pid = pid.filter(|pid| !sum.pids.contains(pid));
    sum.pids.extend(pid);
    sum.time += time;
}

fn costliest(culprits: impl Iterator<Item = WaitedFor>, max: usize) -> Vec<WaitedFor> {
    let mut culprits: Vec<WaitedFor> = culprits.collect();
    culprits.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    culprits.truncate(max);
    culprits
}

#[cfg(test)]
mod tests;
