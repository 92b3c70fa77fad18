//! The beats of a whole recording: one collector a source, then what belongs together.
//!
//! # What is a source here
//! - An interrupt, a softirq, or a function within one, on each CPU by itself: every CPU has its
//!   own timers, and two of them at one rate make no single beat.
//! - A thread, on all CPUs together, because threads move. Its event is a *stretch*: rows of one
//!   thread less than [`JOIN`] apart on a CPU, so that a page fault or the border of a work item
//!   does not make two events of one.
//! - A work item's function: on each CPU where the worker is bound to one, else on all together.
//! - A probe's gaps on each CPU, of several lengths and more ([`gaps`]).
//!
//! Where sums are kept, a source has the events from [`Sum::TIMED_FROM`] on: beats of minutes and hours
//! are made of few long ones. A window in which such events have no times either counts as not
//! observed for their source ([`MAX_UNTIMED`]).
//!
//! Idling is no source. ticktax's own threads are collected only to know their effects; the
//! statement marks them.
//!
//! # Memory
//! At most [`MAX_STREAMS`] sources, each of at most 16 384 kept events; of these at most
//! [`MAX_GROWN`] may keep more than the first 2048. What goes beyond is counted and told.

mod causes;
mod follows;
mod gaps;
mod lines;
mod merge;
mod news;
mod outside;
mod routes;
mod search;
mod starts;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod ticks;
mod tie;
mod trail;

use ticktax_model::beats::{BeatLine, BeatStatement};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Row, RowSink, Sum};
use ticktax_model::witness::CpuProof;
use ticktax_model::{Cpu, Nanos, SourceTable, Span};

use self::causes::Causes;
use self::gaps::GapStreams;
pub(crate) use self::lines::FAMILY;
use self::news::News;
pub(crate) use self::outside::Trust;
use self::routes::{Route, Routes};
use self::starts::Starts;
use self::streams::{NONE, StreamId, Streams};
use self::ticks::Ticks;
use self::trail::{Stretch, Trail};
use super::Tick;
use crate::ledger::{self, Proofs};
use crate::timeline::{Event, EventKind, Keep, MAX_TIME, Timeline};

/// Rows of one thread that are closer than this are one stretch.
const JOIN: Nanos = Nanos(1_000);
/// The most sources that are collected.
const MAX_STREAMS: usize = 4_096;
/// The most sources that may keep more than one block of events.
const MAX_GROWN: usize = 1_024;
/// The most windows without times that a source may have and still be searched.
const MAX_UNTIMED: usize = 64;
/// Events to a block.
const BLOCK: usize = 2_048;

/// Takes a recording's rows as they come and finds what in them repeats.
#[derive(Debug)]
pub struct BeatFinder {
    timeline: Timeline,
    proofs: Proofs,
    finder: Finder,
}

impl Default for BeatFinder {
    fn default() -> Self {
        Self {
            timeline: Timeline::new(Keep::NOTHING),
            proofs: Proofs::default(),
            finder: Finder::default(),
        }
    }
}

impl BeatFinder {
    /// A finder that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same finder, which also searches the halves of the observation of what has no beat in the
    /// whole: for what began, ended or changed meanwhile. It takes up to four times as long.
    #[must_use]
    pub fn with_halves(mut self) -> Self {
        self.finder.halves = true;
        self
    }

    /// Searches everything that came, on `threads` threads at once.
    pub fn finish(self, header: &Header, threads: usize) -> BeatStatement {
        let proofs = self.proofs.finish(header);
        self.finder.finish(header, proofs, threads)
    }
}

impl RowSink for BeatFinder {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, _) = self.timeline.event(sources, row);
        self.proofs.event(&event);
        self.finder.event(&event);
    }
}

/// Takes a timeline's events as they come and finds what in them repeats.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    streams: Streams,
    routes: Routes,
    gaps: GapStreams,
    starts: Starts,
    /// By CPU number.
    trails: Vec<Trail>,
    first: Option<Nanos>,
    last: Nanos,
    sums: u64,
    news: News,
    /// Whether to look for beats that went on for a part of the time only.
    halves: bool,
    causes: Causes,
    /// The kernel's tick, where it is known.
    tick: Option<Tick>,
    /// What it was for each CPU when it was last looked for.
    ticks: Ticks,
    trust: Trust,
}

impl Finder {
    /// A finder of beats on `machine`.
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            tick: machine.hz_configured.and_then(Tick::of_hz),
            ..Self::default()
        }
    }

    /// Searches everything that came, on `threads` threads at once. `proofs` says what an empty gap
    /// proves on each CPU.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        proofs: Vec<CpuProof>,
        threads: usize,
    ) -> BeatStatement {
        self.trust = Trust {
            proofs,
            slack: ledger::slack(header),
            guest: header.machine.hypervisor.is_some(),
        };
        for cpu in 0..self.trails.len() {
            if let Some(stretch) = self.trails[cpu].close() {
                self.end_of_stretch(stretch);
            }
        }
        self.streams.settle();
        self.causes.settle_all();
        let hz = header.machine.hz_configured;
        self.tick = hz.and_then(Tick::of_hz).or(self.tick);
        self.ticks = Ticks::of(self.tick, &self.streams, self.last);
        lines::statement(&mut self, header, threads)
    }

    /// Beats that were not in an earlier call, for a live view: those of the few sources
    /// that took the most time. It costs some hundredths of a second.
    pub(crate) fn news(&mut self) -> Vec<BeatLine> {
        self.ticks = Ticks::of(self.tick, &self.streams, self.last);
        let lines = lines::so_far(self);
        self.news.of(lines)
    }

    /// Takes an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        // No CPU has such a number, and no clock such times; the ledger reports what is wrong.
        let sane = Nanos::ZERO..=MAX_TIME;
        let is_sane =
            event.is_on_possible_cpu() && sane.contains(&span.start) && sane.contains(&span.dur);
        match event.kind() {
            EventKind::Sum(_, sum) => {
                self.sums += 1;
                if is_sane {
                    self.sum(event, sum);
                }
                return;
            }
            _ if !is_sane => return,
            EventKind::Edge(edge) => {
                self.causes.edge(edge, event.sources.get(span.source));
                return;
            }
            _ => {}
        }
        let begin = self.observe(span);
        if event.slot >= self.trails.len() {
            self.trails.resize_with(event.slot + 1, Trail::default);
        }
        let route = self.route(event, begin);
        if matches!(route, Route::Base | Route::Work(_) | Route::Thread(_)) {
            self.trails[event.slot].base(span);
        }
        match route {
            Route::Ignore | Route::Base => {}
            Route::Frame(group) | Route::Work(group) => {
                let stream = self.streams.of_group(group, span, begin);
                if stream != NONE {
                    self.onset(stream, span.cpu, span.start, span.end());
                }
            }
            Route::Thread(stream) => self.thread(stream, span),
            Route::Gap(probe) => self.gaps.push(&mut self.streams, probe, span, begin),
            Route::Wait(stream) => self.streams.push(stream, span.cpu, span.start, span.dur),
        }
    }

    /// Takes note of the time of a row; returns when the observation began.
    fn observe(&mut self, span: &Span) -> Nanos {
        let begin = self.first.map_or(span.start, |first| first.min(span.start));
        self.first = Some(begin);
        self.last = self.last.max(span.end());
        begin
    }

    /// Takes the intervals of a source in a window that have no times.
    fn sum(&mut self, event: &Event<'_>, sum: &Sum) {
        let begin = self.observe(event.span);
        if !sum.has_long() {
            return;
        }
        let stream = match self.route(event, begin) {
            Route::Frame(group) | Route::Work(group) => {
                self.streams.of_group(group, event.span, begin)
            }
            Route::Thread(stream) | Route::Wait(stream) => stream,
            Route::Ignore | Route::Base | Route::Gap(_) => NONE,
        };
        if stream != NONE {
            let window = (event.span.start, event.span.end());
            self.streams.has_no_times(stream, window);
        }
    }

    #[inline]
    fn route(&mut self, event: &Event<'_>, begin: Nanos) -> Route {
        if let Some(route) = self.routes.known(event.span.source) {
            return route;
        }
        let route = self.routes.enter(event, &mut self.streams, begin);
        let source = event.sources.get(event.span.source);
        // Where there are sums, the first row of a thread is not its first run.
        if self.sums == 0 {
            self.starts
                .note(&mut self.streams, source, event.span, begin);
        }
        route
    }

    fn thread(&mut self, stream: StreamId, span: &Span) {
        if let Some(stretch) = self.trails[span.cpu.index()].thread(stream, span) {
            self.end_of_stretch(stretch);
        }
    }

    fn end_of_stretch(&mut self, stretch: Stretch) {
        self.onset(stretch.stream, stretch.cpu, stretch.start, stretch.end);
    }

    /// A source that something can make run did run from `start` to `end`.
    fn onset(&mut self, stream: StreamId, cpu: Cpu, start: Nanos, end: Nanos) {
        let key = &self.streams[stream as usize].key;
        self.causes.onset(stream, key, cpu, start, end);
        self.streams.push(stream, cpu, start, end - start);
    }
}
