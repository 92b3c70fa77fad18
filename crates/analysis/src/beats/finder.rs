//! The beats of a whole recording: one collector a source, then what belongs together.
//!
//! # What is a source here
//! - An interrupt, a softirq, or a function within one, on each CPU by itself: every CPU has its
//!   own timers, and two of them at one rate make no single beat.
//! - A thread, on all CPUs together, because threads move. Its event is a *stretch*: rows of one
//!   thread less than [`JOIN`] apart on a CPU, so that a page fault or the border of a work item
//!   does not make two events of one.
//! - A work item's function: on each CPU where the worker is bound to one, else on all together.
//! - A probe's gaps on each CPU, of [`LEAST_GAPS`] lengths and more: what is rare and long must not
//!   drown in what is frequent and short.
//!
//! Idling is no source. ticktax's own threads are collected only to know their effects; the
//! statement marks them.
//!
//! # Memory
//! At most [`MOST_STREAMS`] sources, each of at most 16 384 kept events; of these at most
//! [`MOST_GROWN`] may keep more than the first 2048. What goes beyond is counted and told.

mod lines;
mod merge;
mod predecessors;
mod search;
mod stream;
#[cfg(test)]
mod tests;
mod tie;
mod trail;

use std::collections::{HashMap, HashSet};

use ticktax_model::beats::{BeatLine, BeatStatement};
use ticktax_model::recording::{Header, ProbeKind, Row, RowSink};
use ticktax_model::{Cpu, Nanos, Owner, Source, SourceId, SourceTable, Span};

use self::stream::{Key, Stream, What};
use self::trail::Trail;
use crate::timeline::{Event, EventKind, History, Keep, MOST_TIME, Occupant, Role, Timeline};

/// Rows of one thread that are closer than this are one stretch.
const JOIN: Nanos = Nanos(1_000);
/// The lengths from which gaps of a spinning probe are looked at.
const LEAST_GAPS: [Nanos; 3] = [
    Nanos::from_micros(1),
    Nanos::from_micros(100),
    Nanos::from_millis(1),
];
/// The same for the delays of a sleeping one, which are never 0.
const LEAST_DELAYS: [Nanos; 2] = [Nanos::from_micros(200), Nanos::from_millis(1)];
/// The longest time between a cause and its effect, from the start of the one to the start of the
/// other. Waking an idle virtual CPU takes some tens of µs.
const MOMENT: Nanos = Nanos::from_micros(200);
/// The most sources that are collected.
const MOST_STREAMS: usize = 4_096;
/// The most sources that may keep more than one block of events.
const MOST_GROWN: usize = 1_024;
/// Events to a block.
const BLOCK: usize = 2_048;

/// Where a source's rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Ignore,
    /// Idling and what else only shows that a CPU was observed.
    Base,
    /// An interrupt's, by group and then CPU.
    Frame(u32),
    /// A work item's of a bound worker, by group and then CPU.
    Work(u32),
    /// A thread's, or a work item's that may run anywhere.
    Thread(u32),
    Gap(ProbeKind),
    Wait(u32),
}

/// Takes a recording's rows as they come and finds what in them repeats.
#[derive(Debug)]
pub struct BeatFinder {
    timeline: Timeline,
    finder: Finder,
}

impl Default for BeatFinder {
    fn default() -> Self {
        Self {
            timeline: Timeline::new(Keep::LONG),
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
        self.finder.finish(header, threads)
    }
}

impl RowSink for BeatFinder {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, history) = self.timeline.event(sources, row);
        self.finder.event(&event, history);
    }
}

/// Takes a timeline's events as they come and finds what in them repeats.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    streams: Vec<Stream>,
    by_key: HashMap<Key, u32>,
    /// By [`SourceId`].
    routes: Vec<Option<Route>>,
    /// Sources that are one on each CPU.
    groups: Vec<What>,
    by_group: HashMap<What, u32>,
    /// By group and CPU; `u32::MAX` where there is none yet.
    group_streams: Vec<Vec<u32>>,
    /// By CPU number.
    trails: Vec<Trail>,
    /// By CPU number, probe and length.
    gap_streams: Vec<[u32; LEAST_GAPS.len() + LEAST_DELAYS.len()]>,
    seen_threads: HashSet<i32>,
    first: Option<Nanos>,
    last: Nanos,
    sums: u64,
    left_out: HashSet<SourceId>,
    grown: usize,
    stunted: u64,
    told: Vec<(String, f64)>,
    /// Whether to look for beats that went on for a part of the time only.
    halves: bool,
}

/// No stream.
const NONE: u32 = u32::MAX;

impl Finder {
    /// Searches everything that came, on `threads` threads at once.
    pub(crate) fn finish(mut self, header: &Header, threads: usize) -> BeatStatement {
        self.close_stretches();
        lines::statement(&mut self, header, threads)
    }

    /// Beats that were not told before, for somebody who watches: those of the few sources that
    /// took the most time. It costs some hundredths of a second.
    pub(crate) fn news(&mut self) -> Vec<BeatLine> {
        let lines = lines::so_far(self);
        let is_new = |line: &BeatLine, told: &[(String, f64)]| {
            !line.own
                && told.iter().all(|(name, period)| {
                    *name != line.name || (period / line.period - 1.0).abs() > 0.01
                })
        };
        let mut news = Vec::new();
        for line in lines {
            if is_new(&line, &self.told) {
                self.told.push((line.name.clone(), line.period));
                news.push(line);
            }
        }
        news
    }

    fn close_stretches(&mut self) {
        for cpu in 0..self.trails.len() {
            if let Some(stretch) = self.trails[cpu].close() {
                self.end_of_stretch(stretch);
            }
        }
        self.streams.iter_mut().for_each(Stream::settle);
    }

    fn end_of_stretch(&mut self, stretch: trail::Stretch) {
        let stream = &mut self.streams[stretch.stream as usize];
        stream.push(stretch.cpu, stretch.start, stretch.end - stretch.start);
        self.after_push(stretch.stream);
    }

    fn after_push(&mut self, stream: u32) {
        let stream = &mut self.streams[stream as usize];
        if stream.may_not_grow() && !stream.stunted {
            if self.grown < MOST_GROWN {
                self.grown += 1;
                stream.grow();
            } else {
                stream.stunted = true;
                self.stunted += 1;
            }
        }
    }

    fn stream(&mut self, key: Key) -> u32 {
        if let Some(&stream) = self.by_key.get(&key) {
            return stream;
        }
        if self.streams.len() >= MOST_STREAMS {
            return NONE;
        }
        let stream = u32::try_from(self.streams.len()).unwrap_or(NONE);
        let begin = self.first.unwrap_or_default();
        self.streams.push(Stream::new(key.clone(), begin));
        self.by_key.insert(key, stream);
        stream
    }

    fn group(&mut self, what: What) -> u32 {
        if let Some(&group) = self.by_group.get(&what) {
            return group;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(NONE);
        self.groups.push(what.clone());
        self.group_streams.push(Vec::new());
        self.by_group.insert(what, group);
        group
    }

    fn group_stream(&mut self, group: u32, cpu: Cpu, source: SourceId) -> u32 {
        let index = cpu.index();
        let streams = &mut self.group_streams[group as usize];
        if index >= streams.len() {
            streams.resize(index + 1, NONE);
        }
        if streams[index] != NONE {
            return streams[index];
        }
        let what = self.groups[group as usize].clone();
        let stream = self.stream(Key {
            what,
            cpu: Some(cpu),
        });
        if stream == NONE {
            self.left_out.insert(source);
        }
        self.group_streams[group as usize][index] = stream;
        stream
    }

    fn route(&mut self, event: &Event<'_>) -> Route {
        let index = event.span.source.0 as usize;
        if index >= self.routes.len() {
            self.routes.resize(index + 1, None);
        }
        if let Some(route) = self.routes[index] {
            return route;
        }
        let id = event.span.source;
        let source = event.sources.get(id);
        let route = self.route_of(event.roles.of(id), source, id);
        self.routes[index] = Some(route);
        self.note_start(source, event.span);
        route
    }

    fn route_of(&mut self, role: Role, source: &Source, id: SourceId) -> Route {
        match role {
            Role::OnCpu(Occupant::Idle) => Route::Base,
            Role::Gap(probe) => Route::Gap(probe),
            Role::Interrupt(_) => Route::Frame(self.group(What::of_frame(source))),
            Role::Steal | Role::Frame => Route::Ignore,
            Role::OffCpu(_) => match self.thread_stream(source, id) {
                NONE => Route::Ignore,
                stream => Route::Wait(stream),
            },
            Role::OnCpu(Occupant::Thread(on)) if on.owner == Owner::Probe => Route::Base,
            Role::OnCpu(_) if stream::is_worker(source) => {
                if source.detail.is_empty() || &*source.detail == "page_fault" {
                    Route::Base
                } else if stream::is_bound_worker(source) {
                    Route::Work(self.group(What::of_work(source)))
                } else {
                    let key = Key {
                        what: What::of_work(source),
                        cpu: None,
                    };
                    self.stream_or_base(key, id)
                }
            }
            Role::OnCpu(_) => match self.thread_stream(source, id) {
                NONE => Route::Base,
                stream => Route::Thread(stream),
            },
        }
    }

    fn stream_or_base(&mut self, key: Key, id: SourceId) -> Route {
        match self.stream(key) {
            NONE => {
                self.left_out.insert(id);
                Route::Base
            }
            stream => Route::Thread(stream),
        }
    }

    fn thread_stream(&mut self, source: &Source, id: SourceId) -> u32 {
        let key = Key {
            what: What::of_thread(source),
            cpu: None,
        };
        let stream = self.stream(key);
        if stream == NONE {
            self.left_out.insert(id);
        }
        stream
    }

    /// A thread that is seen for the first time is an event of its program's starts.
    fn note_start(&mut self, source: &Source, span: &Span) {
        let Some(thread) = &source.thread else {
            return;
        };
        if source.owner != Owner::Program || self.seen_threads.len() >= 1 << 16 {
            return;
        }
        // Whatever runs in the first moment was there before.
        let settled = self
            .first
            .is_some_and(|first| span.start - first > Nanos::from_millis(500));
        if self.seen_threads.insert(thread.tid) && settled {
            let key = Key {
                what: What::of_starts(source),
                cpu: None,
            };
            let stream = self.stream(key);
            if stream != NONE {
                self.streams[stream as usize].push(span.cpu, span.start, span.dur);
            }
        }
    }

    fn gap(&mut self, probe: ProbeKind, span: &Span) {
        let lengths: &[Nanos] = match probe {
            ProbeKind::Spin => &LEAST_GAPS,
            ProbeKind::Sleep => &LEAST_DELAYS,
        };
        let offset = match probe {
            ProbeKind::Spin => 0,
            ProbeKind::Sleep => LEAST_GAPS.len(),
        };
        let cpu = span.cpu.index();
        for (i, &min) in lengths.iter().enumerate() {
            if span.dur < min {
                break;
            }
            if cpu >= self.gap_streams.len() {
                self.gap_streams
                    .resize(cpu + 1, [NONE; LEAST_GAPS.len() + LEAST_DELAYS.len()]);
            }
            let mut stream = self.gap_streams[cpu][offset + i];
            if stream == NONE {
                let what = What::Gaps { probe, min };
                stream = self.stream(Key {
                    what,
                    cpu: Some(span.cpu),
                });
                self.gap_streams[cpu][offset + i] = stream;
            }
            if stream != NONE {
                self.streams[stream as usize].push(span.cpu, span.start, span.dur);
                self.after_push(stream);
            }
        }
    }

    /// An event of a source that does not join with others.
    fn single(&mut self, stream: u32, span: &Span, history: &History) {
        self.look(stream, span, history);
        self.streams[stream as usize].push(span.cpu, span.start, span.dur);
        self.after_push(stream);
    }

    fn thread(&mut self, stream: u32, span: &Span, history: &History) {
        let trail = &mut self.trails[span.cpu.index()];
        let ended = trail.thread(stream, span);
        if trail.is_new_stretch(span) {
            self.look(stream, span, history);
        }
        if let Some(stretch) = ended {
            self.end_of_stretch(stretch);
        }
    }

    /// Counts what ran just before an event of `stream`.
    fn look(&mut self, stream: u32, span: &Span, history: &History) {
        if !self.streams[stream as usize].wants_predecessors() {
            return;
        }
        let Self {
            streams,
            routes,
            group_streams,
            ..
        } = self;
        let stream_of = |source: SourceId| match routes.get(source.0 as usize) {
            Some(&Some(Route::Frame(group) | Route::Work(group))) => {
                let streams = &group_streams[group as usize];
                streams.get(span.cpu.index()).copied()
            }
            Some(&Some(Route::Thread(stream))) => Some(stream),
            _ => None,
        };
        let before = history.just_before(span.start, MOMENT);
        let before = before.filter_map(|row| {
            let stream = stream_of(row.source).filter(|&stream| stream != NONE)?;
            Some((stream, span.start - row.start))
        });
        streams[stream as usize].predecessors.look(stream, before);
    }

    /// Takes an event of a CPU with this past.
    pub(crate) fn event(&mut self, event: &Event<'_>, history: &History) {
        if let EventKind::Sum(..) = event.kind() {
            self.sums += 1;
            return;
        }
        let span = event.span;
        // No CPU has such a number, and no clock such times; the ledger reports what is wrong.
        let sane = Nanos::ZERO..=MOST_TIME;
        if !event.is_on_possible_cpu() || !sane.contains(&span.start) || !sane.contains(&span.dur) {
            return;
        }
        let first = self.first.map_or(span.start, |first| first.min(span.start));
        self.first = Some(first);
        self.last = self.last.max(span.end());
        if event.slot >= self.trails.len() {
            self.trails.resize_with(event.slot + 1, Trail::default);
        }
        let route = self.route(event);
        if matches!(route, Route::Base | Route::Work(_) | Route::Thread(_)) {
            self.trails[event.slot].base(span);
        }
        match route {
            Route::Ignore | Route::Base => {}
            Route::Frame(group) | Route::Work(group) => {
                let stream = self.group_stream(group, span.cpu, span.source);
                if stream != NONE {
                    self.single(stream, span, history);
                }
            }
            Route::Thread(stream) => self.thread(stream, span, history),
            Route::Gap(probe) => self.gap(probe, span),
            Route::Wait(stream) => {
                self.streams[stream as usize].push(span.cpu, span.start, span.dur);
                self.after_push(stream);
            }
        }
    }
}
