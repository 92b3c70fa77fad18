//! Finds the beats in a whole recording. A *beat* is periodic activity by a single source. The
//! finder collects each source's events, searches them for periods, and joins beats that belong
//! together.
//! # Sources
//! - Each interrupt, softirq, or function within one is a separate source on each CPU. CPUs have
//!   their own timers, so two timers that run at the same rate on different CPUs are not one beat.
//! - A thread is a single source across all CPUs, because threads migrate. Its events are *runs*:
//!   rows on the same CPU that are less than `JOIN` apart. That way, a page fault or the start of a
//!   work item doesn't split an event in two.
//! - A work item's function is one source per CPU if its worker is bound to a CPU, and a single
//!   source across all CPUs otherwise.
//! - A probe's gaps form one source for each CPU and minimum length (`gaps`).
//!
//! In a recording that keeps sums, only events that last at least [`Sum::TIMED_FROM`] have times.
//! That is enough to find beats with periods of minutes or hours, because such beats consist of a
//! few long events. A window that has such events but lacks their times counts as unobserved for
//! that source (see `MAX_UNTIMED`).
//!
//! Idling is not a source. ticktax's own threads are collected only to show their effects, and they
//! are marked in the statement.
//!
//! # Memory
//! There are at most `MAX_STREAMS` sources, and each keeps at most 16 384 events. Only `MAX_GROWN`
//! sources may keep more than their first 2048 events. Sources and events beyond these limits are
//! counted and reported.

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
use self::trail::{CpuRun, Trail};
use crate::ledger::{self, Proofs};
use crate::timeline::{Event, EventKind, Keep, MAX_TIME, Timeline};
use ticktax_beats::Tick;

/// Two rows of a thread count as one run if they are at most this far apart.
const JOIN: Nanos = Nanos(1_000);
const MAX_STREAMS: usize = 4_096;
/// Maximum number of sources that keep more than one block of events.
const MAX_GROWN: usize = 1_024;
/// A source is not searched if it has more than this many windows with events at unknown times.
const MAX_UNTIMED: usize = 64;
/// Number of events per block.
const BLOCK: usize = 2_048;

/// Finds the beats in a recording from its rows.
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
    /// Creates a finder without any events.
    pub fn new() -> Self {
        Self::default()
    }

    /// If a source has no beat over the whole observation, also searches parts of the observation.
    /// This finds beats that started, stopped or changed during the recording, but the search can
    /// take four times as long.
    #[must_use]
    pub fn with_halves(mut self) -> Self {
        self.finder.halves = true;
        self
    }

    /// Searches all events, using `threads` threads, and returns the beats found.
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

#[derive(Debug, Default)]
pub(crate) struct Finder {
    streams: Streams,
    routes: Routes,
    gaps: GapStreams,
    starts: Starts,
    trails: Vec<Trail>,
    first: Option<Nanos>,
    last: Nanos,
    sums: u64,
    news: News,
    /// Whether to look for beats that were present during only part of the observation.
    halves: bool,
    causes: Causes,
    tick: Option<Tick>,
    ticks: Ticks,
    trust: Trust,
    /// Rate of the recording's profile. `None` until the end of the recording.
    profile_hz: Option<u32>,
}

impl Finder {
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            tick: machine.hz_configured.and_then(Tick::of_hz),
            ..Self::default()
        }
    }

    /// Searches all events, using `threads` threads. `proofs` states for each CPU whether a gap
    /// without rows proves that the hypervisor or firmware had taken the CPU.
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
            if let Some(run) = self.trails[cpu].close() {
                self.end_of_run(run);
            }
        }
        self.streams.settle();
        self.causes.settle_all();
        let hz = header.machine.hz_configured;
        self.tick = hz.and_then(Tick::of_hz).or(self.tick);
        self.ticks = Ticks::new(self.tick, &self.streams, self.last);
        self.profile_hz = header.profile_hz;
        lines::statement(&mut self, header, threads)
    }

    /// Returns beats that no earlier call has returned, for use in a live view. Considers only the
    /// few sources that took the most time, so a call takes just a few hundredths of a second.
    pub(crate) fn news(&mut self) -> Vec<BeatLine> {
        self.ticks = Ticks::new(self.tick, &self.streams, self.last);
        let lines = lines::so_far(self);
        self.news.not_shown_yet(lines)
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        // Drop events with impossible CPU numbers or times. The ledger reports them.
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
            // A sample shows the clock of the profile, and nothing that the source did.
            EventKind::Sampled(_) | EventKind::Profiled(_) | EventKind::Waited(_) => return,
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
                let stream = self.streams.on_cpu_of(group, span, begin);
                if stream != NONE {
                    self.onset(stream, span.cpu, span.start, span.end());
                }
            }
            Route::Thread(stream) => self.thread(stream, span),
            Route::Gap(probe) => self.gaps.push(&mut self.streams, probe, span, begin),
            Route::Wait(stream) => self.streams.push(stream, span.cpu, span.start, span.dur),
        }
    }

    /// Extends the observation to include `span`, and returns the observation's start.
    fn observe(&mut self, span: &Span) -> Nanos {
        let begin = self.first.map_or(span.start, |first| first.min(span.start));
        self.first = Some(begin);
        self.last = self.last.max(span.end());
        begin
    }

    /// Marks a window in which a source has events at unknown times because they come from a sum.
    fn sum(&mut self, event: &Event<'_>, sum: &Sum) {
        let begin = self.observe(event.span);
        if !sum.has_long() {
            return;
        }
        let stream = match self.route(event, begin) {
            Route::Frame(group) | Route::Work(group) => {
                self.streams.on_cpu_of(group, event.span, begin)
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
        // In a recording with sums, a thread's first row is not necessarily its first run.
        if self.sums == 0 {
            self.starts
                .note(&mut self.streams, source, event.span, begin);
        }
        route
    }

    fn thread(&mut self, stream: StreamId, span: &Span) {
        if let Some(run) = self.trails[span.cpu.index()].thread(stream, span) {
            self.end_of_run(run);
        }
    }

    fn end_of_run(&mut self, run: CpuRun) {
        self.onset(run.stream, run.cpu, run.start, run.end);
    }

    /// Adds a run of `stream` from `start` to `end`, provided that its source can have causes.
    fn onset(&mut self, stream: StreamId, cpu: Cpu, start: Nanos, end: Nanos) {
        let key = &self.streams[stream as usize].key;
        self.causes.onset(stream, key, cpu, start, end);
        self.streams.push(stream, cpu, start, end - start);
    }
}
