//! The timeline of a recording. It shows the spans on every CPU, waits and wake-ups, and can be
//! zoomed from the whole recording down to a microsecond.
//!
//! Rows arrive one by one and are kept in bounded memory. A span's own time, meaning its time
//! without interruptions, is added up in columns, and these sums stay exact. Individual spans are
//! kept as far as memory allows, longest first. The page contains a drawing of the whole recording,
//! which needs no script, and the same data for a script that zooms:
//! docs/explanation/decisions/0010-an-own-timeline.md.

mod columns;
mod groups;
mod kept;
mod nesting;
mod overview;
mod pack;
mod section;

use std::collections::HashMap;

use ticktax_model::recording::{Edge, Row, RowSink};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Cpu, Kind, Nanos, SourceId, SourceTable, Span};

use crate::html::RowsEnded;
use crate::wakeups::WakeUps;
use columns::Columns;
use groups::Groups;
use kept::Kept;
use nesting::{Nesting, OwnInterval};
pub(super) use section::{Drawn, target};

/// The script for pages with a timeline. `cargo xtask script` builds it.
pub(super) const SCRIPT: &str = include_str!("timeline/timeline.min.js");
pub(super) const STYLE: &str = include_str!("timeline/style.css");

/// Maximum number of spans, waits and wake-ups that are kept.
const SPANS: usize = 1_200_000;
const WAITS: usize = 200_000;
const RUNS: usize = 300_000;

/// A thread's run, and the span that woke the thread.
#[derive(Clone, Copy, Debug)]
struct Woken {
    by: Span,
    cpu: Cpu,
    ran: Nanos,
    source: SourceId,
}

impl Woken {
    fn latency(&self) -> Nanos {
        self.ran - self.by.start
    }
}

/// A timeline under construction.
#[derive(Debug)]
pub(super) struct Timeline {
    groups: Groups,
    columns: Columns,
    nesting: Nesting,
    spans: Kept<Span>,
    waits: Kept<Span>,
    runs: Kept<Woken>,
    wake_ups: WakeUps,
    /// Total waiting time of each thread, by tid.
    waited: HashMap<i32, Nanos>,
    /// Start of the first row and end of the last row.
    seen: Option<(Nanos, Nanos)>,
    /// Number of rows that are sums. Such rows have no individual spans.
    sums: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            columns: Columns::default(),
            nesting: Nesting::default(),
            spans: Kept::new(SPANS, |span| span.dur),
            waits: Kept::new(WAITS, |span| span.dur),
            runs: Kept::new(RUNS, Woken::latency),
            wake_ups: WakeUps::default(),
            waited: HashMap::new(),
            seen: None,
            sums: 0,
        }
    }
}

impl RowSink for Timeline {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        match row {
            Row::Span(span) => self.span(sources, span),
            Row::Sum(_) => self.sums += 1,
            Row::Frame(_) => {}
            Row::Edge(edge) => self.edge(edge),
        }
    }
}

impl Timeline {
    /// Completes the timeline. Returns `None` if no CPU has a span.
    pub(super) fn finish(mut self, ended: &RowsEnded<'_>) -> Option<Drawn> {
        let nesting = std::mem::take(&mut self.nesting);
        nesting.finish(&mut |interval| {
            own(&mut self.groups, &mut self.columns, ended.sources, interval);
        });
        section::draw(self, ended)
    }

    fn edge(&mut self, edge: &Edge) {
        self.wake_ups.edge(edge);
    }

    fn span(&mut self, sources: &SourceTable, span: &Span) {
        let source = sources.get(span.source);
        match source.kind {
            Kind::Frame | Kind::Late => return,
            Kind::Wait => return self.wait(sources, span),
            Kind::Gap | Kind::Steal => {
                let group = self.groups.group_of(sources, span.source);
                self.groups.add(group, span.dur);
                self.columns.time(span.cpu, group, span.start, span.end());
            }
            Kind::Idle | Kind::Task | Kind::Softirq | Kind::Irq | Kind::Nmi => {
                let is_lowest = matches!(source.kind, Kind::Idle | Kind::Task);
                let (groups, columns) = (&mut self.groups, &mut self.columns);
                self.nesting.push(*span, is_lowest, &mut |interval| {
                    own(groups, columns, sources, interval);
                });
            }
        }
        self.columns.count(span.cpu, span.start);
        let (begin, end) = self.seen.unwrap_or((span.start, span.end()));
        self.seen = Some((begin.min(span.start), end.max(span.end())));
        self.spans.push(*span);
        if let (Kind::Task, Some(thread)) = (source.kind, &source.thread)
            && let Some(by) = self.wake_ups.take_waker(thread.tid, span)
        {
            self.runs.push(Woken {
                by,
                cpu: span.cpu,
                ran: span.start,
                source: span.source,
            });
        }
    }

    /// Keeps a thread's wait if it is a delay. Sleep is not a delay.
    fn wait(&mut self, sources: &SourceTable, span: &Span) {
        let source = sources.get(span.source);
        let (Some(thread), Some((reason, _))) =
            (&source.thread, OffCpuReason::from_detail(&source.detail))
        else {
            return;
        };
        let is_delay = matches!(
            reason,
            OffCpuReason::Woken
                | OffCpuReason::Preempted
                | OffCpuReason::Throttled
                | OffCpuReason::Deadline
                | OffCpuReason::Frozen
                | OffCpuReason::Disk
                | OffCpuReason::Lock
        );
        if is_delay {
            *self.waited.entry(thread.tid).or_default() += span.dur;
            self.waits.push(*span);
        }
    }
}

/// Adds an interval of a source's own time to the columns.
fn own(groups: &mut Groups, columns: &mut Columns, sources: &SourceTable, interval: OwnInterval) {
    let group = groups.group_of(sources, interval.source);
    groups.add(group, interval.end - interval.begin);
    columns.time(interval.cpu, group, interval.begin, interval.end);
}
