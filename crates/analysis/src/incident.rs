//! From a recording that a trigger made to what happened: who did not run, what ran instead, and what had
//! made that run.
//!
//! # What is claimed
//! What ran instead is the own time of each row on the CPU where the thread waited, to the ns; what no row
//! covers is told as unseen. What made something run is a wake-up edge that led to it, or is not told.
//!
//! # Memory
//! Rows of the delay and of the second before it, 40 bytes each, at most `MAX_ROWS`; edges the same. Where they
//! are more, those before the delay give way, but for the thread's own: causes are then told less far back.

mod causes;
mod frame;
mod group;
mod own;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ticktax_model::incident::{Incident, IncidentThread, RanInstead, Trigger, TriggerKind};
use ticktax_model::recording::{Effect, Header, Row, RowSink};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use crate::victim::{MIN_IDLE, named, waker};

pub use group::{incident_list, incident_sheet};

/// Before the delay, what may have led to it is looked for within this.
const BEFORE: Nanos = Nanos::from_secs(1);
/// After a stretch, whom it kept from running is looked for within this.
const AFTER: Nanos = Nanos::from_millis(10);
/// Rows that are kept, and edges: 10 MiB of each.
const MAX_ROWS: usize = 1 << 18;
/// What ran instead that is told by name.
const NAMED: usize = 8;

/// Takes the rows of a recording that a trigger made, and says what happened.
#[derive(Debug)]
pub struct IncidentAnalysis {
    trigger: Trigger,
    triggers: u64,
    /// From when on rows are kept.
    from: Nanos,
    spans: Vec<Span>,
    edges: Vec<Seen>,
}

/// An edge that was seen.
#[derive(Clone, Debug)]
struct Seen {
    at: Nanos,
    cpu: Cpu,
    by: SourceId,
    effect: Effect,
}

impl IncidentAnalysis {
    /// For what these triggers made, all of a recording's or some of them, where no row has come; `None` where there are none.
    pub fn new(triggers: &[Trigger]) -> Option<Self> {
        // What was measured tells more than that somebody asked.
        let weight = |it: &&Trigger| (it.kind.is_measured(), it.lasted);
        let latest_of_equals = triggers.iter().rev();
        let trigger = latest_of_equals.max_by_key(weight)?.clone();
        let mut new = Self {
            trigger,
            triggers: triggers.len() as u64,
            from: Nanos::ZERO,
            spans: Vec::new(),
            edges: Vec::new(),
        };
        new.from = new.window().0;
        Some(new)
    }

    /// The trigger that the incident is about: that of the longest delay.
    pub fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// From when to when rows matter.
    fn window(&self) -> (Nanos, Nanos) {
        let begin = self.trigger.begin().0.saturating_sub(BEFORE.0);
        let end = self.trigger.time.0.saturating_add(AFTER.0);
        (Nanos(begin), Nanos(end))
    }

    /// Has rows before the delay give way, where they have not yet; those of the thread itself stay.
    fn make_room(&mut self, sources: &SourceTable) {
        let (from, tid) = (self.trigger.begin() - LEADS, self.trigger.tid);
        if self.from >= from {
            return;
        }
        self.from = from;
        self.spans
            .retain(|span| ends(span) >= from || is_thread(sources.get(span.source), tid));
        self.edges
            .retain(|edge| edge.at >= from || edge.effect == Effect::Woke(tid));
    }

    /// What happened. `at_unix_ms` is when it was noticed, on the wall clock.
    pub fn finish(mut self, header: &Header, sources: &SourceTable, at_unix_ms: i64) -> Incident {
        self.spans.sort_by_key(|span| (span.start, -span.dur));
        self.edges.sort_by_key(|edge| edge.at);
        let trigger = &self.trigger;
        let mut told = Incident {
            cpu: trigger.cpu,
            lasted: trigger.lasted,
            above: trigger.above,
            triggers: self.triggers,
            events_lost: header.coverage.events_lost(),
            ..Incident::new(trigger.kind, at_unix_ms)
        };
        match trigger.kind {
            TriggerKind::Wait | TriggerKind::Late => self.waited(&mut told, sources),
            TriggerKind::Blocked => self.blocked(&mut told, sources),
            TriggerKind::Throttled => told.thread = self.thread_of_trigger(sources),
            TriggerKind::Stretch => self.stretched(&mut told, sources),
            TriggerKind::Gap => self.missed(&mut told, sources),
            TriggerKind::Frame => self.began_late(&mut told, sources),
            TriggerKind::Signal => {}
            TriggerKind::Mark => told.words.clone_from(&trigger.comm),
        }
        told
    }

    /// A thread waited for a CPU.
    fn waited(&self, told: &mut Incident, sources: &SourceTable) {
        told.thread = self.thread_of_trigger(sources);
        let (begin, tid) = (self.trigger.begin(), self.trigger.tid);
        let woken = self.woken(tid, (begin - LEADS, begin + ROUNDED), sources);
        told.woken_by = woken.map(|edge| waker(edge.by, sources));
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let before = self.last_cpu(tid, begin, sources);
        let (pieces, waited_on) =
            self.waited_behind((begin, self.trigger.time), cpu, before, sources);
        told.waited_on = waited_on;
        told.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        self.rank(told, &pieces, sources);
    }

    /// What ran where a thread waited, in the end for `cpu`, which had left the CPU `before`; and that one, where it waited
    /// there at first.
    fn waited_behind(
        &self,
        (begin, end): (Nanos, Nanos),
        cpu: Cpu,
        before: Option<Cpu>,
        sources: &SourceTable,
    ) -> (Vec<own::Piece>, Option<Cpu>) {
        let mut pieces = self.own_times(cpu, begin, end);
        // On a CPU that idled nobody was waiting: the thread was in the queue of another until then.
        let idle = pieces
            .iter()
            .filter(|piece| sources.get(piece.source).kind == Kind::Idle && piece.own >= MIN_IDLE);
        let until = idle.map(|piece| piece.end).max();
        let before = before.filter(|&before| before != cpu);
        if let (Some(until), Some(before)) = (until, before) {
            pieces = self.own_times(before, begin, until);
            pieces.extend(self.own_times(cpu, until, end));
            return (pieces, Some(before));
        }
        (pieces, None)
    }

    /// A thread was blocked, and something woke it.
    fn blocked(&self, told: &mut Incident, sources: &SourceTable) {
        told.thread = self.thread_of_trigger(sources);
        let during = (self.trigger.begin(), self.trigger.time);
        if let Some(woken) = self.woken(self.trigger.tid, during, sources) {
            told.woken_by = Some(waker(woken.by, sources));
            told.chain = self.chain(woken, sources);
        }
    }

    /// The kernel had a CPU without a break.
    fn stretched(&self, told: &mut Incident, sources: &SourceTable) {
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let (begin, end) = (self.trigger.begin(), self.trigger.time);
        let pieces = self.own_times(cpu, begin, end);
        told.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        told.thread = self.kept_waiting(cpu, (begin, end), sources);
        self.rank(told, &pieces, sources);
    }

    /// A probe wanted its CPU and did not have it. Of its own rows then nothing is known: it did not run.
    fn missed(&self, told: &mut Incident, sources: &SourceTable) {
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let mut pieces = self.own_times(cpu, self.trigger.begin(), self.trigger.time);
        pieces.retain(|piece| sources.get(piece.source).owner != Owner::Probe);
        told.unseen = self.trigger.lasted - pieces.iter().map(|piece| piece.own).sum();
        self.rank(told, &pieces, sources);
    }

    /// Puts what ran into the order of its time, and says what made the first of it run.
    fn rank(&self, told: &mut Incident, pieces: &[own::Piece], sources: &SourceTable) {
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
            told.chain = self.chain_of_piece(longest, sources);
        }
        told.others = ran.iter().skip(NAMED).map(|(ran, _)| ran.time).sum();
        ran.truncate(NAMED);
        told.ran = ran.into_iter().map(|(ran, _)| ran).collect();
    }

    /// The thread that the trigger names, with its program, as far as rows tell it.
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

    /// The CPU that the thread last had before `time`.
    fn last_cpu(&self, tid: i32, time: Nanos, sources: &SourceTable) -> Option<Cpu> {
        let before = self
            .spans
            .iter()
            .filter(|span| span.end() <= time + ROUNDED);
        let own = before.filter(|span| is_thread(sources.get(span.source), tid));
        own.max_by_key(|span| span.end()).map(|span| span.cpu)
    }

    /// The thread that a stretch on `cpu` kept from running: the one that an interrupt or a softirq
    /// interrupted, else the next that ran there and was able to before the stretch ended.
    fn kept_waiting(
        &self,
        cpu: Cpu,
        (begin, end): (Nanos, Nanos),
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
        let is_stretch = |span: &Span| span.start >= begin - ROUNDED && span.end() <= end + ROUNDED;
        let mut beneath = threads
            .clone()
            .filter(|span| span.start < end && span.end() > begin);
        // A thread that goes on before or after the stretch is beneath it; one that does not is the stretch.
        let found = beneath.find(|span| !is_stretch(span) && span.start <= begin);
        if let Some(span) = found.filter(|span| span.end() >= end) {
            return Some(span)
                .filter(wanted)
                .map(|span| thread(span.source, sources));
        }
        let next = threads
            .clone()
            .find(|span| span.start >= end - ROUNDED && wanted(span))?;
        let tid = sources.get(next.source).thread.as_ref()?.tid;
        let able_since = self.able_since(tid, next.start, sources)?;
        (able_since < end - ROUNDED).then(|| thread(next.source, sources))
    }
}

/// From the moment at which something begins to wake a thread until the thread may run: an interrupt to another
/// CPU may lie between.
const LEADS: Nanos = Nanos::from_millis(1);
/// By so much the kernel's scheduler clock may be off from the one that rows have.
const ROUNDED: Nanos = Nanos::from_micros(20);

/// Whether this is a row of the thread `tid`, which 0 never is.
fn is_thread(source: &ticktax_model::Source, tid: i32) -> bool {
    let thread = source.thread.as_ref();
    source.kind == Kind::Task && tid != 0 && thread.is_some_and(|thread| thread.tid == tid)
}

/// When a row ended, whatever it says.
fn ends(span: &Span) -> Nanos {
    Nanos(span.start.0.saturating_add(span.dur.0))
}

/// The thread of such a row.
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
        let (begin, to) = self.window();
        let (from, tid) = (self.from, self.trigger.tid);
        let wanted = |at: Nanos, own: bool| at >= from || (own && at >= begin);
        match row {
            Row::Span(span) => {
                let source = sources.get(span.source);
                let told = !matches!(source.kind, Kind::Gap | Kind::Wait | Kind::Frame);
                let wanted = wanted(ends(span), is_thread(source, tid));
                if told && span.start <= to && wanted && self.spans.len() < MAX_ROWS {
                    self.spans.push(*span);
                }
            }
            Row::Edge(edge) => {
                let at = edge.span.start;
                let wanted = wanted(at, edge.effect == Effect::Woke(tid));
                if at <= to && wanted && self.edges.len() < MAX_ROWS {
                    self.edges.push(Seen {
                        at,
                        cpu: edge.span.cpu,
                        by: edge.span.source,
                        effect: edge.effect.clone(),
                    });
                }
            }
            Row::Sum(_) | Row::Frame(_) => {}
        }
    }
}
