//! The timeline of a recording: spans of every CPU, what threads waited for and what woke them, from the whole run down
//! to a microsecond.
//!
//! Rows are taken as they come, in bounded memory. Own time is summed up in columns, which stay exact; single spans are
//! kept as far as there is room, the longest first. The page has a drawing of the whole run, which needs no script, and
//! the same data for a script that zooms in it: docs/decisions/0010-an-own-timeline.md.

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
use nesting::{Nesting, Stretch};
pub(super) use section::{Drawn, target};

/// The script of a page with a timeline, as `cargo xtask script` builds it.
pub(super) const SCRIPT: &str = include_str!("timeline/timeline.min.js");
/// How a timeline looks.
pub(super) const STYLE: &str = include_str!("timeline/style.css");

/// Single spans, waits and wake-ups that are kept at most.
const SPANS: usize = 1_200_000;
const WAITS: usize = 200_000;
const RUNS: usize = 300_000;

/// A run of a thread, and what woke it for that.
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

/// A timeline in the making.
#[derive(Debug)]
pub(super) struct Timeline {
    groups: Groups,
    columns: Columns,
    nesting: Nesting,
    spans: Kept<Span>,
    waits: Kept<Span>,
    runs: Kept<Woken>,
    wake_ups: WakeUps,
    /// What each thread waited for in all.
    waited: HashMap<i32, Nanos>,
    /// When the first row began and the last one ended.
    seen: Option<(Nanos, Nanos)>,
    /// Sums that are in no span.
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
    /// The timeline as a part of a page; `None` where no CPU has a span.
    pub(super) fn finish(mut self, ended: &RowsEnded<'_>) -> Option<Drawn> {
        let nesting = std::mem::take(&mut self.nesting);
        nesting.finish(&mut |stretch| {
            own(&mut self.groups, &mut self.columns, ended.sources, stretch);
        });
        section::draw(self, ended)
    }

    fn edge(&mut self, edge: &Edge) {
        self.wake_ups.edge(edge);
    }

    fn span(&mut self, sources: &SourceTable, span: &Span) {
        let source = sources.get(span.source);
        match source.kind {
            Kind::Frame => return,
            Kind::Wait => return self.wait(sources, span),
            Kind::Gap | Kind::Steal => {
                let group = self.groups.of(sources, span.source);
                self.groups.add(group, span.dur);
                self.columns.time(span.cpu, group, span.start, span.end());
            }
            Kind::Idle | Kind::Task | Kind::Softirq | Kind::Irq | Kind::Nmi => {
                let is_lowest = matches!(source.kind, Kind::Idle | Kind::Task);
                let (groups, columns) = (&mut self.groups, &mut self.columns);
                self.nesting.push(*span, is_lowest, &mut |stretch| {
                    own(groups, columns, sources, stretch);
                });
            }
        }
        self.columns.count(span.cpu, span.start);
        let (begin, end) = self.seen.unwrap_or((span.start, span.end()));
        self.seen = Some((begin.min(span.start), end.max(span.end())));
        self.spans.push(*span);
        if let (Kind::Task, Some(thread)) = (source.kind, &source.thread)
            && let Some(by) = self.wake_ups.that_led_to(thread.tid, span)
        {
            self.runs.push(Woken {
                by,
                cpu: span.cpu,
                ran: span.start,
                source: span.source,
            });
        }
    }

    /// Keeps what a thread wanted and did not get; what it slept is no delay.
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
                | OffCpuReason::Disk
                | OffCpuReason::Lock
        );
        if is_delay {
            *self.waited.entry(thread.tid).or_default() += span.dur;
            self.waits.push(*span);
        }
    }
}

/// Adds a stretch of own time to its columns.
fn own(groups: &mut Groups, columns: &mut Columns, sources: &SourceTable, stretch: Stretch) {
    let group = groups.of(sources, stretch.source);
    groups.add(group, stretch.end - stretch.begin);
    columns.time(stretch.cpu, group, stretch.begin, stretch.end);
}
