//! Explains a recording that a trigger started: which thread did not run, what ran instead, and why
//! that ran.
//!
//! # Claims
//! Each source that ran instead is charged, to the nanosecond, the self time of its rows on the CPU
//! where the thread waited. Time that no row covers is reported as unseen. A cause is always a
//! wake-up edge. Without an edge, no cause is reported.
//!
//! # Memory
//! Rows are kept from a second before the delay until its end: at most `MAX_ROWS`, at 40 bytes
//! each. The same goes for edges. If there are more, those from before the delay are dropped,
//! except for the thread's own. Chains of causes then don't reach back as far.

mod causes;
mod frame;
mod group;
mod own;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::incident::{Incident, IncidentThread, RanInstead, Trigger, TriggerKind};
use ticktax_model::recording::{Effect, Header, Row, RowSink};
use ticktax_model::{Cpu, Interval, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use crate::names::{named, waker};
use crate::sampled::{FunctionNames, Samples};
use crate::timeline::MIN_IDLE;

pub use group::{incident_list, incident_sheet};

/// Length of the time before the delay that is searched for causes.
const BEFORE: Nanos = Nanos::from_secs(1);
/// Length of the time after long uninterrupted kernel work that is searched for the thread that the
/// work kept waiting.
const AFTER: Nanos = Nanos::from_millis(10);
/// Maximum number of rows kept, and also of edges. Each of the two lists takes up to 10 MiB.
const MAX_ROWS: usize = 1 << 18;
/// Maximum number of samples kept, of 40 bytes each. The rest is ignored.
const MAX_SAMPLES: usize = 1 << 14;
/// Maximum number of sources reported to have run instead.
const NAMED: usize = 8;

/// Explains a recording that a trigger started, based on the recording's rows.
#[derive(Debug)]
pub struct IncidentAnalysis {
    trigger: Trigger,
    triggers: u64,
    /// Rows that end before this time are not kept.
    from: Nanos,
    spans: Vec<Span>,
    edges: Vec<ObservedEdge>,
    samples: Vec<Sample>,
}

/// Code that a timer interrupted.
#[derive(Clone, Debug)]
struct Sample {
    at: Nanos,
    cpu: Cpu,
    source: SourceId,
    code: Arc<str>,
}

#[derive(Clone, Debug)]
struct ObservedEdge {
    at: Nanos,
    cpu: Cpu,
    by: SourceId,
    effect: Effect,
}

impl IncidentAnalysis {
    /// Starts the analysis of some or all of a recording's `triggers`. Returns `None` if `triggers`
    /// is empty.
    pub fn new(triggers: &[Trigger]) -> Option<Self> {
        // A measured delay explains more than a mere request to record.
        let weight = |trigger: &&Trigger| (trigger.kind.is_measured(), trigger.lasted);
        let latest_of_equals = triggers.iter().rev();
        let trigger = latest_of_equals.max_by_key(weight)?.clone();
        let mut new = Self {
            trigger,
            triggers: triggers.len() as u64,
            from: Nanos::ZERO,
            spans: Vec::new(),
            edges: Vec::new(),
            samples: Vec::new(),
        };
        new.from = new.window().start;
        Some(new)
    }

    /// Returns the trigger that the incident is about: the one with the longest delay.
    pub fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// Returns the interval in which rows matter. It starts [`BEFORE`] the delay, and ends
    /// [`AFTER`] the time at which the delay was noticed.
    fn window(&self) -> Interval {
        Interval::new(self.trigger.begin() - BEFORE, self.trigger.at + AFTER)
    }

    /// Returns the interval of the delay that caused the trigger.
    fn delay(&self) -> Interval {
        Interval::new(self.trigger.begin(), self.trigger.at)
    }

    /// Drops the rows from before the delay, except for the thread's own. Does nothing if that has
    /// already been done.
    fn make_room(&mut self, sources: &SourceTable) {
        let (from, tid) = (self.trigger.begin() - LEADS, self.trigger.tid);
        if self.from >= from {
            return;
        }
        self.from = from;
        self.spans
            .retain(|span| end_of(span) >= from || is_thread(sources.get(span.source), tid));
        self.edges
            .retain(|edge| edge.at >= from || edge.effect == Effect::Woke(tid));
    }

    /// Returns the explanation. `at_unix_ms` is the wall-clock time at which the delay was noticed.
    pub fn finish(mut self, header: &Header, sources: &SourceTable, at_unix_ms: i64) -> Incident {
        self.spans.sort_by_key(|span| (span.start, -span.dur));
        self.edges.sort_by_key(|edge| edge.at);
        let names = &FunctionNames::new(&header.code_files);
        let trigger = &self.trigger;
        let mut incident = Incident {
            cpu: trigger.cpu,
            lasted: trigger.lasted,
            above: trigger.above,
            triggers: self.triggers,
            events_lost: header.coverage.events_lost(),
            ..Incident::new(trigger.kind, at_unix_ms)
        };
        match trigger.kind {
            TriggerKind::Wait | TriggerKind::Late => self.waited(&mut incident, names, sources),
            TriggerKind::Blocked => self.blocked(&mut incident, sources),
            TriggerKind::Throttled => incident.thread = self.thread_of_trigger(sources),
            TriggerKind::Stretch => self.stretched(&mut incident, names, sources),
            TriggerKind::Gap => self.missed(&mut incident, names, sources),
            TriggerKind::Frame => self.began_late(&mut incident, names, sources),
            TriggerKind::Signal => {}
            TriggerKind::Mark => incident.text.clone_from(&trigger.comm),
        }
        incident
    }

    /// Explains why a thread waited for a CPU.
    fn waited(&self, incident: &mut Incident, names: &FunctionNames<'_>, sources: &SourceTable) {
        incident.thread = self.thread_of_trigger(sources);
        let (begin, tid) = (self.trigger.begin(), self.trigger.tid);
        let start = Interval::new(begin - LEADS, begin + ROUNDED);
        let woken = self.woken(tid, start, sources);
        incident.woken_by = woken.map(|edge| waker(edge.by, sources));
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let before = self.last_cpu(tid, begin, sources);
        let (pieces, waited_on) = self.waited_behind(self.delay(), cpu, before, sources);
        incident.waited_on = waited_on;
        incident.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        self.rank(incident, &pieces, names, sources);
    }

    /// Returns the rows that delayed a thread during its `wait` for a CPU, and the CPU on which it
    /// waited, if known. The thread last ran on `before` and then on `cpu`. If it waited on
    /// `before` first, that CPU's rows are included.
    fn waited_behind(
        &self,
        wait: Interval,
        cpu: Cpu,
        before: Option<Cpu>,
        sources: &SourceTable,
    ) -> (Vec<own::Piece>, Option<Cpu>) {
        let mut pieces = self.own_times(cpu, wait.start, wait.end);
        // Until the idle time ended, the thread must have been in another CPU's queue. Otherwise it
        // would have run on this one.
        let idle = pieces
            .iter()
            .filter(|piece| sources.get(piece.source).kind == Kind::Idle && piece.own >= MIN_IDLE);
        let until = idle.map(|piece| piece.end).max();
        let before = before.filter(|&before| before != cpu);
        if let (Some(until), Some(before)) = (until, before) {
            pieces = self.own_times(before, wait.start, until);
            pieces.extend(self.own_times(cpu, until, wait.end));
            return (pieces, Some(before));
        }
        (pieces, None)
    }

    /// Explains why a thread was blocked, judging by the thread or interrupt that woke it.
    fn blocked(&self, incident: &mut Incident, sources: &SourceTable) {
        incident.thread = self.thread_of_trigger(sources);
        incident.place.clone_from(&self.trigger.place);
        if let Some(woken) = self.woken(self.trigger.tid, self.delay(), sources) {
            incident.woken_by = Some(waker(woken.by, sources));
            incident.chain = self.chain(woken, sources);
        }
    }

    /// Explains why the kernel used a CPU without interruption.
    fn stretched(&self, incident: &mut Incident, names: &FunctionNames<'_>, sources: &SourceTable) {
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let delay = self.delay();
        let pieces = self.own_times(cpu, delay.start, delay.end);
        incident.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        incident.thread = self.kept_waiting(cpu, delay, sources);
        self.rank(incident, &pieces, names, sources);
    }

    /// Explains why a probe did not get its CPU. Ignores the probe's own rows, because the probe
    /// did not run.
    fn missed(&self, incident: &mut Incident, names: &FunctionNames<'_>, sources: &SourceTable) {
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let mut pieces = self.own_times(cpu, self.trigger.begin(), self.trigger.at);
        pieces.retain(|piece| sources.get(piece.source).owner != Owner::Probe);
        incident.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        self.rank(incident, &pieces, names, sources);
    }

    /// Sorts the sources that ran by time, and determines why the one with the most time ran.
    fn rank(
        &self,
        incident: &mut Incident,
        pieces: &[own::Piece],
        names: &FunctionNames<'_>,
        sources: &SourceTable,
    ) {
        let mut by_name: BTreeMap<(String, Kind), (RanInstead, &own::Piece)> = BTreeMap::new();
        for piece in pieces {
            let (name, kind, pid) = named(piece.source, sources);
            let new = || {
                let ran = RanInstead {
                    name: name.clone(),
                    kind,
                    pids: Vec::new(),
                    time: Nanos::ZERO,
                    count: 0,
                    code: None,
                };
                (ran, piece)
            };
            let (ran, longest) = by_name.entry((name.clone(), kind)).or_insert_with(new);
            let pid = pid.filter(|pid| !ran.pids.contains(pid));
            ran.pids.extend(pid);
            ran.time += piece.own;
            ran.count += 1;
            if piece.own > longest.own {
                *longest = piece;
            }
        }
        let mut ran: Vec<(RanInstead, &own::Piece)> = by_name.into_values().collect();
        ran.retain(|(ran, _)| ran.time > Nanos::ZERO);
        ran.sort_by(|(a, _), (b, _)| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        if let Some((_, longest)) = ran.first() {
            incident.chain = self.chain_of_piece(longest, sources);
        }
        incident.others = ran.iter().skip(NAMED).map(|(ran, _)| ran.time).sum();
        ran.truncate(NAMED);
        let samples = self.samples_in(pieces).named(names);
        incident.ran = ran.into_iter().map(|(ran, _)| ran).collect();
        for ran in &mut incident.ran {
            let is_of = |id| {
                let (name, kind, _) = named(id, sources);
                (name, kind) == (ran.name.clone(), ran.kind)
            };
            ran.code = samples.code(is_of, |_, _| true);
        }
    }

    /// Returns the samples in these parts of rows.
    fn samples_in(&self, pieces: &[own::Piece]) -> Samples {
        let is_in = |sample: &&Sample| {
            pieces.iter().any(|piece| {
                let at = piece.start..=piece.end;
                (piece.source, piece.cpu) == (sample.source, sample.cpu) && at.contains(&sample.at)
            })
        };
        let mut samples = Samples::default();
        for sample in self.samples.iter().filter(is_in) {
            samples.add(sample.at, sample.source, &sample.code);
        }
        samples
    }

    fn thread_of_trigger(&self, sources: &SourceTable) -> Option<IncidentThread> {
        let Trigger { tid, pid, comm, .. } = &self.trigger;
        let found = sources.iter().find(|(_, source)| is_thread(source, *tid));
        let program = found.map(|(id, _)| named(id, sources).0);
        (*tid != 0 || !comm.is_empty()).then(|| IncidentThread {
            program: program.unwrap_or_else(|| comm.clone()),
            name: comm.clone(),
            pid: *pid,
            tid: *tid,
        })
    }

    fn last_cpu(&self, tid: i32, time: Nanos, sources: &SourceTable) -> Option<Cpu> {
        let before = self
            .spans
            .iter()
            .filter(|span| span.end() <= time + ROUNDED);
        let own = before.filter(|span| is_thread(sources.get(span.source), tid));
        own.max_by_key(|span| span.end()).map(|span| span.cpu)
    }

    /// Returns the thread that uninterrupted kernel work on `cpu` delayed. If the work was an
    /// interrupt or a softirq, that is the thread it interrupted. Otherwise, it is the next thread
    /// on that CPU, provided that it was runnable before the kernel work ended.
    fn kept_waiting(
        &self,
        cpu: Cpu,
        work: Interval,
        sources: &SourceTable,
    ) -> Option<IncidentThread> {
        let threads = self.spans.iter().filter(|span| {
            let source = sources.get(span.source);
            span.cpu == cpu && source.kind == Kind::Task && source.thread.is_some()
        });
        let wanted = |span: &&Span| {
            let source = sources.get(span.source);
            source.owner == Owner::Program
        };
        let is_work =
            |span: &Span| span.start >= work.start - ROUNDED && span.end() <= work.end + ROUNDED;
        let mut beneath = threads
            .clone()
            .filter(|span| span.start < work.end && span.end() > work.start);
        // If the thread also ran before or after the kernel work, it was interrupted. Otherwise,
        // the thread is itself the kernel work.
        let found = beneath.find(|span| !is_work(span) && span.start <= work.start);
        if let Some(span) = found.filter(|span| span.end() >= work.end) {
            return Some(span)
                .filter(wanted)
                .map(|span| thread(span.source, sources));
        }
        let next = threads
            .clone()
            .find(|span| span.start >= work.end - ROUNDED && wanted(span))?;
        let tid = sources.get(next.source).thread.as_ref()?.tid;
        let runnable_since = self.runnable_since(tid, next.start, sources)?;
        (runnable_since < work.end - ROUNDED).then(|| thread(next.source, sources))
    }
}

/// Longest time from the start of a wake-up until the thread is runnable. It can include an
/// interrupt sent to another CPU.
const LEADS: Nanos = Nanos::from_millis(1);
/// Largest difference between the kernel's scheduler clock and the clock used for rows.
const ROUNDED: Nanos = Nanos::from_micros(20);

fn is_thread(source: &ticktax_model::Source, tid: i32) -> bool {
    let thread = source.thread.as_ref();
    source.kind == Kind::Task && tid != 0 && thread.is_some_and(|thread| thread.tid == tid)
}

/// Returns the end of a row. The sum saturates because a file can contain any times.
fn end_of(span: &Span) -> Nanos {
    Nanos(span.start.0.saturating_add(span.dur.0))
}

fn thread(id: SourceId, sources: &SourceTable) -> IncidentThread {
    let source = sources.get(id);
    let thread = source.thread.as_ref();
    IncidentThread {
        name: source.name.to_string(),
        program: named(id, sources).0,
        pid: thread.map_or(0, |thread| thread.pid),
        tid: thread.map_or(0, |thread| thread.tid),
    }
}

impl RowSink for IncidentAnalysis {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        if self.spans.len() >= MAX_ROWS || self.edges.len() >= MAX_ROWS {
            self.make_room(sources);
        }
        let window = self.window();
        let (from, tid) = (self.from, self.trigger.tid);
        let wanted = |at: Nanos, own: bool| at >= from || (own && at >= window.start);
        match row {
            Row::Span(span) => {
                let source = sources.get(span.source);
                let occupies_cpu = !matches!(
                    source.kind,
                    Kind::Gap | Kind::Wait | Kind::Frame | Kind::Late
                );
                let wanted = wanted(end_of(span), is_thread(source, tid));
                if occupies_cpu && span.start <= window.end && wanted && self.spans.len() < MAX_ROWS
                {
                    self.spans.push(*span);
                }
            }
            Row::Edge(edge) if !edge.effect.is_sample() => {
                let at = edge.span.start;
                let wanted = wanted(at, edge.effect == Effect::Woke(tid));
                if at <= window.end && wanted && self.edges.len() < MAX_ROWS {
                    self.edges.push(ObservedEdge {
                        at,
                        cpu: edge.span.cpu,
                        by: edge.span.source,
                        effect: edge.effect.clone(),
                    });
                }
            }
            Row::Edge(edge) => {
                let delay = self.delay();
                let (at, cpu) = (edge.span.start, edge.span.cpu);
                if let Effect::Sampled(code) = &edge.effect
                    && (delay.start..=delay.end).contains(&at)
                    && self.samples.len() < MAX_SAMPLES
                {
                    self.samples.push(Sample {
                        at,
                        cpu,
                        source: edge.span.source,
                        code: Arc::clone(code),
                    });
                }
            }
            Row::Sum(_) | Row::Frame(_) => {}
        }
    }
}
