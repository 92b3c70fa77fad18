//! The timeline section of a page: the data for the script, a drawing that needs no script, and
//! tables.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use serde::Serialize;
use ticktax_model::document::Document;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::recording::Header;
use ticktax_model::victim::{OffCpuReason, VictimHeader};
use ticktax_model::{Cpu, Interval, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span};

use super::columns::Grid;
use super::groups::{Class, source_name};
use super::pack::Pack;
use super::{Timeline, Woken, overview};
use crate::html::RowsEnded;
use crate::html::escape::{self, attribute, plain, running, text};
use crate::text::numbers::{counted, grouped};

/// Maximum number of columns per CPU and for all CPUs together.
const COLUMNS: usize = 1 << 14;
const ALL_COLUMNS: usize = 1 << 17;
/// Maximum number of threads whose waits are drawn.
const THREADS: usize = 12;
/// Maximum number of lines in a table of the longest items.
const LINES: usize = 10;

/// Parts of the page that belong to a timeline.
pub(in crate::html) struct Drawn {
    /// The visible part.
    pub(in crate::html) html: String,
    /// Script elements that contain the data for the script.
    pub(in crate::html) data: String,
    /// Links to the triggers that made a flight recorder keep this recording.
    pub(in crate::html) triggers: String,
}

/// Metadata for decoding the numbers. All times are in ns since the start of the recording.
#[derive(Serialize)]
struct Meta {
    from: i64,
    to: i64,
    columns: MetaColumns,
    classes: Vec<Class>,
    /// The name of each source, and the index of its class.
    sources: Vec<(String, usize)>,
    cpus: Vec<MetaCpu>,
    lanes: Vec<MetaLane>,
    reasons: Vec<&'static str>,
    wakeups: usize,
    marks: Vec<Mark>,
    /// Length in ns of the shortest span that is kept. Shorter spans appear only in the columns.
    floor: i64,
}

#[derive(Serialize)]
struct MetaColumns {
    begin: i64,
    width: i64,
    count: usize,
}

#[derive(Serialize)]
struct MetaCpu {
    cpu: u32,
    spans: usize,
}

#[derive(Serialize)]
struct MetaLane {
    name: String,
    waits: usize,
}

/// A moment that the page links to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mark {
    pub(super) at: i64,
    pub(super) length: i64,
    pub(super) cpu: Option<u32>,
    pub(super) name: String,
}

/// Draws a timeline. Returns `None` if the recording is empty or no CPU has a span.
pub(super) fn draw(mut timeline: Timeline, ended: &RowsEnded<'_>) -> Option<Drawn> {
    let (zero, begin, end) = range(&timeline, ended.header)?;
    timeline.spans.sort_by_key(order);
    let cpus: Vec<Cpu> = timeline.columns.cpus().collect();
    let most = COLUMNS.min(ALL_COLUMNS / cpus.len().max(1)).max(1);
    let grid = timeline.columns.fit(begin, end, most);
    let victim = ended.header.victim.as_ref();
    let (classes, places) = timeline.groups.classes(victim.map(|header| &*header.name));
    let view = View {
        timeline: &timeline,
        sources: ended.sources,
        zero,
        grid,
        classes,
        places,
        cpus,
    };
    let marks = marks(ended, zero);
    let tables: Vec<Vec<Vec<u64>>> = view.cpus.iter().map(|cpu| view.columns(*cpu)).collect();
    let lanes = view.lanes(victim);
    let triggers = triggers(&marks[..ended.header.triggers.len()]);
    let (mut meta, pack) = view.numbers(&tables, &lanes);
    (meta.from, meta.to) = ((begin - zero).0, (end - zero).0);
    meta.marks.clone_from(&marks);
    let mut html = String::new();
    let range = Interval::new(begin - zero, end - zero);
    view.html(&mut html, &tables, &marks, range, !lanes.is_empty());
    view.longest(&mut html, &marks, &lanes);
    let meta = serde_json::to_string(&meta).unwrap_or_default();
    // Free the spans before the page is built, because they take more memory than the page.
    drop(timeline);
    let data = format!(
        "<script type=\"application/json\" id=\"ticktax-timeline\">{}</script>\n\
         <script type=\"text/plain\" id=\"ticktax-timeline-numbers\">{}</script>\n",
        escape::json(&meta),
        pack.text()
    );
    Some(Drawn {
        html,
        data,
        triggers,
    })
}

/// Returns a key that sorts spans by CPU, then by start. A span precedes the spans that interrupted
/// it. An interrupting span of equal length has more self time, so it still comes later.
fn order(span: &Span) -> (Cpu, Nanos, Reverse<Nanos>, Nanos, SourceId) {
    let Span {
        cpu, start, dur, ..
    } = *span;
    (cpu, start, Reverse(dur), span.self_time, span.source)
}

/// Returns links to the triggers of a flight recorder. They are shown in the summary.
fn triggers(marks: &[Mark]) -> String {
    let mut out = String::new();
    for mark in marks {
        let (at, length) = (Nanos(mark.at), Nanos(mark.length));
        let target = target(at, length, mark.cpu.map(Cpu));
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            out,
            "<p class=\"plain\"><a href=\"{target}\">{}, {length} at {:.6} s: show in \
             timeline</a></p>",
            text(&mark.name),
            at.as_secs_f64()
        );
    }
    out
}

/// Returns the time that counts as 0, and the start and end of the timeline, or `None` if the
/// timeline is empty.
fn range(timeline: &Timeline, header: &Header) -> Option<(Nanos, Nanos, Nanos)> {
    let (first, last) = timeline.seen?;
    let cpus = header.cpus.iter();
    let begin = cpus.clone().map(|cpu| cpu.begin).min();
    let end = cpus.map(|cpu| cpu.end).max();
    let (begin, end) = (begin.unwrap_or(first), end.unwrap_or(last));
    (begin < end).then(|| (header.begin().unwrap_or(begin), begin, end))
}

/// Returns the moments that the page links to. The triggers of a flight recorder come first, then
/// the longest delays of the watched program.
fn marks(ended: &RowsEnded<'_>, zero: Nanos) -> Vec<Mark> {
    let triggers = ended.header.triggers.iter().map(|trigger| Mark {
        at: (trigger.at - trigger.lasted - zero).0,
        length: trigger.lasted.0,
        cpu: trigger.cpu.map(|cpu| cpu.0),
        name: plain(&format!("{}: {}", trigger.kind.name(), trigger.comm)),
    });
    let delays = match ended.document {
        Document::Statement(statement) => statement
            .victim
            .as_ref()
            .and_then(|victim| victim.threads.as_ref()),
        _ => None,
    };
    let delays = delays.into_iter().flat_map(|threads| &threads.delays);
    let delays = delays.map(|delay| Mark {
        at: delay.at.0,
        length: delay.length.0,
        cpu: Some(delay.waited_on.unwrap_or(delay.cpu).0),
        name: plain(&format!("{} ({}) {}", delay.thread, delay.tid, delay.kind)),
    });
    triggers.chain(delays).collect()
}

/// Returns the link to an interval on the timeline. The view adds half of the interval's length on
/// either side.
pub(in crate::html) fn target(at: Nanos, length: Nanos, cpu: Option<Cpu>) -> String {
    let around = Nanos(length.0.max(1_000) / 2);
    let (from, to) = (at - around, at + length + around);
    let cpu = cpu.map_or_else(String::new, |cpu| format!(",{cpu}"));
    format!("#timeline={},{}{cpu}", from.0, to.0)
}

/// A lane in the timeline that shows the waits of one thread.
struct Lane {
    name: String,
    waits: Vec<Span>,
}

/// Inputs for all parts of the section.
struct View<'a> {
    timeline: &'a Timeline,
    sources: &'a SourceTable,
    zero: Nanos,
    grid: Grid,
    classes: Vec<Class>,
    /// For each group, the index of its class.
    places: Vec<usize>,
    cpus: Vec<Cpu>,
}

impl View<'_> {
    /// Returns a CPU's sums for each class, followed by the number of spans that start in each
    /// column.
    fn columns(&self, cpu: Cpu) -> Vec<Vec<u64>> {
        let groups = self.timeline.groups.len();
        let all = self.timeline.columns.table(cpu, self.grid, groups);
        let mut table = vec![vec![0; self.grid.count]; self.classes.len() + 1];
        let places = self.places.iter().copied().chain([self.classes.len()]);
        for (sums, place) in all.iter().zip(places) {
            for (sum, more) in table[place].iter_mut().zip(sums) {
                *sum += more;
            }
        }
        table
    }

    /// Returns lanes for the threads that waited most. If a program was watched and any of its
    /// threads waited, only that program's threads get lanes.
    fn lanes(&self, victim: Option<&VictimHeader>) -> Vec<Lane> {
        let mut by_thread: HashMap<i32, Vec<Span>> = HashMap::new();
        for wait in self.timeline.waits.items() {
            if let Some(thread) = &self.sources.get(wait.source).thread {
                by_thread.entry(thread.tid).or_default().push(*wait);
            }
        }
        let mut all: Vec<(i32, Vec<Span>)> = by_thread.into_iter().collect();
        let is_victims = |waits: &[Span]| {
            let thread = waits.first().map(|wait| self.sources.get(wait.source));
            let thread = thread.and_then(|source| source.thread.as_ref());
            victim
                .zip(thread)
                .is_some_and(|(victim, thread)| match victim.pid {
                    Some(pid) => thread.pid == pid,
                    None => *thread.program == *victim.name,
                })
        };
        if all.iter().any(|(_, waits)| is_victims(waits)) {
            all.retain(|(_, waits)| is_victims(waits));
        }
        all.sort_by_key(|(tid, _)| (Reverse(self.timeline.waited.get(tid).copied()), *tid));
        all.truncate(THREADS);
        let lane = |(tid, mut waits): (i32, Vec<Span>)| {
            waits.sort_by_key(|wait| wait.start);
            let source = self.sources.get(waits.first()?.source);
            let name = plain(&source.name);
            let name = format!("{name} ({tid})");
            Some(Lane { name, waits })
        };
        all.into_iter().filter_map(lane).collect()
    }

    /// Encodes the data that the script draws.
    fn numbers(&self, tables: &[Vec<Vec<u64>>], lanes: &[Lane]) -> (Meta, Pack) {
        let mut pack = Pack::default();
        let mut names = Names::default();
        for sums in tables.iter().flatten() {
            for &sum in sums {
                pack.number(sum);
            }
        }
        let mut cpus = Vec::new();
        for &cpu in &self.cpus {
            let spans = self.spans(cpu);
            pack.steps(spans.iter().map(|span| (span.start - self.zero).0));
            for span in spans {
                pack.signed(span.dur.0);
            }
            let within = spans.iter().map(|span| (span.dur - span.self_time).0);
            for within in within {
                pack.signed(within);
            }
            for span in spans {
                pack.number(names.index_of(span.source));
            }
            let spans = spans.len();
            cpus.push(MetaCpu { cpu: cpu.0, spans });
        }
        let reasons: Vec<OffCpuReason> = OffCpuReason::ALL.to_vec();
        let mut meta_lanes = Vec::new();
        for Lane { name, waits } in lanes {
            pack.steps(waits.iter().map(|wait| (wait.start - self.zero).0));
            for wait in waits {
                pack.signed(wait.dur.0);
            }
            for wait in waits {
                let detail = &self.sources.get(wait.source).detail;
                let reason = OffCpuReason::from_detail(detail).map(|(reason, _)| reason);
                let place = reasons.iter().position(|listed| Some(*listed) == reason);
                pack.number(place.unwrap_or_default() as u64);
            }
            meta_lanes.push(MetaLane {
                name: name.clone(),
                waits: waits.len(),
            });
        }
        let wakeups = self.wakeups(&mut pack, &mut names);
        let source = |id: &SourceId| {
            let source = self.sources.get(*id);
            (source_name(source), self.class_of(*id))
        };
        let meta = Meta {
            from: 0,
            to: 0,
            columns: MetaColumns {
                begin: (self.grid.begin() - self.zero).0,
                width: self.grid.width,
                count: self.grid.count,
            },
            classes: self.classes.clone(),
            sources: names.order.iter().map(source).collect(),
            cpus,
            lanes: meta_lanes,
            reasons: reasons.iter().map(|reason| reason.name()).collect(),
            wakeups,
            marks: Vec::new(),
            floor: self.timeline.spans.floor().0,
        };
        (meta, pack)
    }

    fn class_of(&self, id: SourceId) -> usize {
        let group = self.timeline.groups.known(id);
        group.map_or(0, |group| self.places[usize::from(group)])
    }

    /// Returns the spans of a CPU, in the order given by [`order`].
    fn spans(&self, cpu: Cpu) -> &[Span] {
        let all = self.timeline.spans.items();
        let begin = all.partition_point(|span| span.cpu < cpu);
        let end = all.partition_point(|span| span.cpu <= cpu);
        &all[begin..end]
    }

    /// Encodes the wake-ups, ordered by the start of the run after each one. Returns the number of
    /// wake-ups encoded.
    fn wakeups(&self, pack: &mut Pack, names: &mut Names) -> usize {
        let mut runs: Vec<Woken> = self.timeline.runs.items().to_vec();
        runs.sort_by_key(|run| run.ran);
        let place = |cpu: Cpu| self.cpus.iter().position(|known| *known == cpu);
        // A CPU without spans is not drawn, so no arrow can start there.
        runs.retain(|run| place(run.by.cpu).is_some());
        pack.steps(runs.iter().map(|run| (run.ran - self.zero).0));
        for run in &runs {
            pack.signed(run.latency().0);
        }
        for get in [|run: &Woken| run.by.source, |run: &Woken| run.source] {
            for run in &runs {
                pack.number(names.index_of(get(run)));
            }
        }
        for get in [|run: &Woken| run.by.cpu, |run: &Woken| run.cpu] {
            let places = runs.iter().map(|run| place(get(run)).unwrap_or_default());
            for place in places {
                pack.number(place as u64);
            }
        }
        runs.len()
    }

    /// Writes the visible part of the section.
    fn html(
        &self,
        out: &mut String,
        tables: &[Vec<Vec<u64>>],
        marks: &[Mark],
        range: Interval,
        has_waits: bool,
    ) {
        overview::patterns(out, &self.classes);
        // Writing to a `String` cannot fail.
        let _ = write!(
            out,
            "<p class=\"legend\">The chart shows what ran on each CPU over time. The height of a \
             bar shows how much of its time span the CPU was busy, with threads at the bottom and \
             softirqs and interrupts above. Idle time is blank.</p>\n<div id=\"timeline-zoom\" \
             class=\"timeline\" hidden></div>\n<figure class=\"timeline-still\">\n<div \
             class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Timeline of the whole \
             recording\">\n"
        );
        overview::write(
            out,
            &overview::Picture {
                cpus: &self.cpus,
                classes: &self.classes,
                tables,
                grid: self.grid,
                zero: self.zero,
                range,
                marks,
            },
        );
        out.push_str("</div>\n</figure>\n<ul class=\"key timeline-key\">\n");
        for class in &self.classes {
            overview::key(out, class);
        }
        if has_waits {
            overview::key_of_waits(out);
        }
        out.push_str("</ul>\n");
        if !marks.is_empty() {
            out.push_str(
                "<p class=\"legend\">The table of red marks lists the numbered marks.</p>\n",
            );
        }
        for note in self.notes() {
            let _ = writeln!(out, "<p class=\"legend\">{}</p>", running(&note));
        }
    }

    /// Returns sentences about what the timeline leaves out.
    fn notes(&self) -> Vec<String> {
        let Timeline {
            spans, waits, runs, ..
        } = self.timeline;
        let mut notes = Vec::new();
        if spans.left_out() > 0 {
            let all = spans.left_out() + spans.items().len() as u64;
            notes.push(format!(
                "{} of {} intervals are shorter than {} and are not drawn individually. The bars, \
                 each {} wide, include their time. To draw them, report on part of the recording \
                 (--from, --to).",
                grouped(spans.left_out()),
                grouped(all),
                spans.floor(),
                Nanos(self.grid.width),
            ));
        }
        for (left_out, floor, what) in [
            (waits.left_out(), waits.floor(), "wait"),
            (runs.left_out(), runs.floor(), "wake-up"),
        ] {
            if left_out > 0 {
                let what = counted(left_out, what);
                notes.push(format!("The chart omits {what} shorter than {floor}."));
            }
        }
        if self.timeline.sums > 0 {
            notes.push(
                "For some activity, this recording contains totals instead of individual \
                 intervals, so that activity is not drawn. `--keep spans` records every interval."
                    .to_owned(),
            );
        }
        notes
    }

    /// Writes tables of the longest items. Each line links to the item on the timeline.
    fn longest(&self, out: &mut String, marks: &[Mark], lanes: &[Lane]) {
        out.push_str("<div class=\"timeline-tables\">\n");
        let delays = marks.iter().enumerate().map(|(place, mark)| {
            let cpu = mark.cpu.map_or_else(String::new, |cpu| cpu.to_string());
            let cells = [cpu, format!("{}: {}", place + 1, mark.name)];
            LongestRow::new(mark.at, mark.length, mark.cpu, cells)
        });
        table(out, "Red marks", ["CPU", "event"], delays);
        let mut waits: Vec<(&str, &Span)> = lanes
            .iter()
            .flat_map(|lane| lane.waits.iter().map(|wait| (&*lane.name, wait)))
            .collect();
        waits.sort_by_key(|(_, wait)| (Reverse(wait.dur), wait.start));
        let waits = waits.iter().take(LINES).map(|(name, wait)| {
            let detail = self.sources.get(wait.source).detail.to_string();
            let cells = [(*name).to_owned(), detail];
            self.line(wait, cells)
        });
        // If there are marks, they already include the longest delays.
        if marks.is_empty() {
            table(out, "Longest waits", ["thread", "reason"], waits);
        }
        let is_threads =
            |source: &Source| source.kind == Kind::Task && source.owner == Owner::Program;
        let is_kernels = |source: &Source| match source.kind {
            _ if *source.name == *UNREPORTED => false,
            Kind::Softirq | Kind::Irq | Kind::Nmi => true,
            Kind::Task => source.owner == Owner::Kernel,
            _ => false,
        };
        self.spans_table(out, "Longest runs: programs", &is_threads);
        self.spans_table(out, "Longest runs: kernel", &is_kernels);
        out.push_str("</div>\n");
    }

    fn spans_table(&self, out: &mut String, title: &str, is_one: &dyn Fn(&Source) -> bool) {
        let all = self.timeline.spans.items().iter();
        let mut spans: Vec<&Span> = all
            .filter(|span| is_one(self.sources.get(span.source)))
            .collect();
        spans.sort_by_key(|span| (Reverse(span.dur), span.start));
        let lines = spans.iter().take(LINES).map(|span| {
            let name = source_name(self.sources.get(span.source));
            self.line(span, [span.cpu.to_string(), name])
        });
        table(out, title, ["CPU", "name"], lines);
    }

    fn line(&self, span: &Span, cells: [String; 2]) -> LongestRow {
        LongestRow::new(
            (span.start - self.zero).0,
            span.dur.0,
            Some(span.cpu.0),
            cells,
        )
    }
}

/// Sources in order of first use.
#[derive(Default)]
struct Names {
    order: Vec<SourceId>,
    places: HashMap<SourceId, u64>,
}

impl Names {
    fn index_of(&mut self, id: SourceId) -> u64 {
        let order = &mut self.order;
        *self.places.entry(id).or_insert_with(|| {
            order.push(id);
            order.len() as u64 - 1
        })
    }
}

/// A line in a table of the longest items.
struct LongestRow {
    at: i64,
    length: i64,
    link: String,
    cells: [String; 2],
}

impl LongestRow {
    fn new(at: i64, length: i64, cpu: Option<u32>, cells: [String; 2]) -> Self {
        let link = target(Nanos(at), Nanos(length), cpu.map(Cpu));
        Self {
            at,
            length,
            link,
            cells,
        }
    }
}

fn table(out: &mut String, title: &str, heads: [&str; 2], lines: impl Iterator<Item = LongestRow>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    let (label, [first, second]) = (attribute(title), heads);
    let _ = write!(
        out,
        "<div>\n<h3>{title}</h3>\n<div class=\"scroll\" role=\"group\" tabindex=\"0\" \
         aria-label=\"{label}\">\n<table>\n\
         <caption class=\"unseen\">{title}</caption>\n<thead>\n<tr><th scope=\"col\">start (s)</th>\
         <th scope=\"col\">length</th><th scope=\"col\" class=\"words\">{first}</th>\
         <th scope=\"col\" class=\"words\">{second}</th></tr>\n</thead>\n<tbody>\n"
    );
    for LongestRow {
        at,
        length,
        link,
        cells: [first, second],
    } in lines
    {
        let at = Nanos(at).as_secs_f64();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><a href=\"{link}\">{at:.6}</a></th><td title=\"{length} \
             ns\">{}</td>\
             <td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            Nanos(length),
            text(&first),
            text(&second)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</div>\n");
}
