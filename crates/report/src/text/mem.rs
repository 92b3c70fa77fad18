//! Pages about the cost of memory accesses.

mod objects;

use std::ops::Range;

use ticktax_model::Nanos;
use ticktax_model::mem::{
    CheckBasis, CheckedWalk, LatencyPoint, MemLatency, MemLevel, MemLimitation, MemWalk,
    PageBacking, Prefetch, WalkCheck, WalkCost, WalkKind,
};

use super::block::{Columns, Written};
use super::numbers::percent;
use super::page::{Page, Tone, tied};
use super::{Paged, TextStyle};

impl Paged for MemLatency {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        latency(&mut page, self);
        page.finish()
    }
}

impl Paged for MemWalk {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        walk(&mut page, self);
        page.finish()
    }
}

/// Width of the longest bar in the plot, in characters.
const PLOT: usize = 15;

fn latency(page: &mut Page, measured: &MemLatency) {
    let levels: Vec<String> = measured
        .levels
        .iter()
        .map(|level| format!("{} {}", level.name, nanos(level.latency_ns)))
        .collect();
    let title = format!("CPU {}: latency of caches and memory", measured.cpu);
    page.line(Tone::Strong, &title);
    if !levels.is_empty() {
        page.paragraph(Tone::Plain, "", &format!("{}.", levels.join(", ")));
        level_table(page, &measured.levels);
    }
    page.section("Latency by size of the working set");
    page.headings(
        Tone::Faint,
        "",
        &Columns::right([
            (8, "huge"),
            (8, "small"),
            (8, "TLB"),
            (9, "next line"),
            (10, "bandwidth"),
        ])
        .and_left(1, PLOT, "log scale"),
    );
    let octaves = measured.points.iter().filter(|point| is_octave(point));
    let ends = ends(&measured.points);
    for point in octaves {
        let (name, cells) = point_cells(point, &ends);
        page.row(Tone::Plain, 2, &name, &cells);
    }
    page.paragraph(Tone::Faint, "", &how(measured));
    for limitation in &measured.limitations {
        page.hanging(Tone::Warning, &limitation_text(limitation));
    }
}

/// Returns whether the size is a power of two, give or take the rounding to whole lines.
fn is_octave(point: &LatencyPoint) -> bool {
    point.size_bytes.is_power_of_two()
}

fn level_table(page: &mut Page, levels: &[MemLevel]) {
    page.headings(
        Tone::Faint,
        "",
        &Columns::right([
            (10, "reported"),
            (10, "found"),
            (9, "latency"),
            (8, "spread"),
            (8, "plateau"),
        ]),
    );
    for level in levels {
        let tone = if level.is_flat() {
            Tone::Plain
        } else {
            Tone::Warning
        };
        let size = |bytes: Option<u64>| bytes.map_or_else(String::new, bytes_text);
        let cells = Columns::right([
            (10, size(level.reported_bytes)),
            (10, size(level.found_bytes)),
            (9, nanos(level.latency_ns)),
            (8, percent(level.spread)),
            (8, plateau_word(level).to_owned()),
        ]);
        page.row(tone, 2, &level.name, &cells);
    }
}

fn plateau_word(level: &MemLevel) -> &'static str {
    match (level.points, level.is_flat()) {
        (0 | 1, _) => "unknown",
        (_, true) => "flat",
        (_, false) => "not flat",
    }
}

/// Returns the shortest and the longest latency, which are the ends of the plot.
fn ends(points: &[LatencyPoint]) -> Range<f64> {
    let all = || points.iter().map(LatencyPoint::latency_ns);
    let low = all().fold(f64::MAX, f64::min);
    let high = all().fold(f64::MIN, f64::max);
    low.max(1e-3)..high.max(1e-3)
}

fn point_cells(point: &LatencyPoint, ends: &Range<f64>) -> (String, Columns) {
    let huge = point.huge.map(|latency| latency.median_ns);
    let small = point.small.median_ns;
    let latency = huge.map_or_else(String::new, nanos);
    let translation = huge.map_or_else(String::new, |huge| nanos((small - huge).max(0.0)));
    let part = (point.latency_ns() / ends.start).ln() / (ends.end / ends.start).ln().max(1e-9);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1 times a small length"
    )]
    let bar = 1 + (part.clamp(0.0, 1.0) * (PLOT - 1) as f64).round() as usize;
    let bandwidth = tied(format!("{:.1} GB/s", 1.0 / point.read_ns_per_byte));
    let cells = Columns::right([
        (8, latency),
        (8, nanos(small)),
        (8, translation),
        (9, nanos(point.next_line_ns)),
        (10, bandwidth),
    ]);
    (
        bytes_text(point.size_bytes),
        cells.and_left(1, PLOT, "#".repeat(bar)),
    )
}

fn how(measured: &MemLatency) -> String {
    let pages = match measured.huge_pages {
        PageBacking::Reserved => "reserved huge pages (vm.nr_hugepages)".to_owned(),
        PageBacking::Transparent { share } => {
            format!(
                "transparent huge pages for {} of the memory",
                percent(share)
            )
        }
        PageBacking::Small => "no huge pages".to_owned(),
    };
    format!(
        "Each latency is the median of {} short measurements of loads in a random order, each of \
         which needs the result of the one before. huge: on huge pages; the kernel provided \
         {pages}. small: on pages of 4 KiB. TLB: the difference, which is the cost of address \
         translation. next line: a load from the line after the one just loaded. bandwidth: one \
         thread, sequential reads.{}",
        measured.repetitions,
        measured.prefetch.map_or_else(String::new, |prefetch| {
            format!(" {}", come_along(Some(prefetch)))
        })
    )
}

fn limitation_text(limitation: &MemLimitation) -> String {
    match limitation {
        MemLimitation::NoHugePages => {
            "The kernel provided no huge pages: the latencies include the cost of address \
             translation. To change this, write madvise to \
             /sys/kernel/mm/transparent_hugepage/enabled."
                .to_owned()
        }
        MemLimitation::NoCacheSizes => "The kernel reports no caches: the levels are the plateaus \
             of the latencies."
            .to_owned(),
        MemLimitation::TooSmall { size_bytes } => format!(
            "The largest working set, {}, is less than four times the largest cache: the latency \
             of memory is unknown. Choose a larger --max.",
            bytes_text(*size_bytes)
        ),
        MemLimitation::Disturbed { share } => format!(
            "The measurement was disturbed for {} of the sizes: a tenth of the measurements took \
             over 25 % longer than the median. Repeat it while the machine and its host are idle.",
            percent(*share)
        ),
    }
}

/// Formats a time that is often far below a microsecond.
pub(super) fn nanos(ns: f64) -> String {
    let digits = match ns {
        _ if ns < 9.995 => 2,
        _ if ns < 99.95 => 1,
        _ => 0,
    };
    tied(format!("{ns:.digits$} ns"))
}

/// Formats a size with a binary unit.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    let Some((shift, name)) = unit else {
        return tied(format!("{bytes} B"));
    };
    let value = bytes as f64 / f64::from(1_u32 << shift);
    let digits = usize::from(value.fract() > 0.0 && value < 100.0);
    tied(format!("{value:.digits$} {name}"))
}

fn walk(page: &mut Page, walk: &MemWalk) {
    let title = format!(
        "Walk over {} objects of struct {}",
        walk.items, walk.structure
    );
    page.line(Tone::Strong, &title);
    page.paragraph(Tone::Plain, "", &summary(walk));
    page.headings(
        Tone::Faint,
        "",
        &costs(["working set", "per object", "walk", "share of time"].map(str::to_owned)),
    );
    for (kind, cost) in [
        (WalkKind::InOrder, walk.interleaved),
        (WalkKind::ByAddress, walk.sequential),
        (WalkKind::Packed, walk.packed),
    ] {
        page.row(Tone::Plain, 2, kind_name(kind), &cost_cells(walk, cost));
    }
    page.section("Touched fields");
    let headings = touch_cells("offset", "size", "line", "");
    page.headings(Tone::Faint, "", &headings);
    for touch in &walk.touches {
        let (offset, size) = (touch.offset_bytes, bytes_text(touch.size_bytes));
        let when = if touch.is_first { "first" } else { "again" };
        let line = touch.line.to_string();
        let cells = touch_cells(&format!("{offset:#x}"), &size, &line, when);
        page.row(Tone::Plain, 2, &touch.field, &cells);
    }
    if !walk.fits.is_empty() {
        page.section("Objects whose touched lines fit in a cache");
        page.headings(Tone::Faint, "", &fit_cells("size", "now", "moved together"));
        for fit in &walk.fits {
            let [now, packed] = [fit.items, fit.packed_items].map(|items| items.to_string());
            let cells = fit_cells(&bytes_text(fit.size_bytes), &now, &packed);
            page.row(Tone::Plain, 2, &fit.level, &cells);
        }
    }
    let status = if let Some(check) = &walk.check {
        checked(page, check, walk.items);
        ""
    } else {
        "The prediction has not been checked on this machine (--verify). "
    };
    page.paragraph(
        Tone::Faint,
        "",
        &format!(
            "{status}The model assumes that each object starts at a cache line, that objects are \
             in a random order in memory on huge pages, and that a line is loaded only after the \
             one before has arrived. {} A CPU that loads several lines of an object at once is \
             faster.",
            come_along(walk.prefetch)
        ),
    );
}

/// Describes the lines that the hardware fetches along with a loaded line.
fn come_along(prefetch: Option<Prefetch>) -> String {
    let Some(prefetch) = prefetch else {
        return "The next line comes along if both are in the same aligned 128 bytes.".to_owned();
    };
    let reach = match (prefetch.before_lines, prefetch.after_lines) {
        (0, 0) => "No other line of an object comes along with a loaded one".to_owned(),
        (before, after) => format!(
            "Lines up to {after} after and {before} before a loaded line of the object come along \
             with it"
        ),
    };
    let fetch = bytes_text(prefetch.fetch_bytes);
    format!("{reach}, and each load fills {fetch} of the caches (both measured).")
}

fn checked(page: &mut Page, check: &WalkCheck, items: u64) {
    page.section("Check with synthetic objects, time per object");
    let headings = ["predicted", "measured", "minimum", "p90", "deviation"];
    page.headings(Tone::Faint, "", &checked_cells(headings.map(str::to_owned)));
    for walk in &check.walks {
        let tone = if walk.deviation().abs() <= check.tolerance {
            Tone::Plain
        } else {
            Tone::Warning
        };
        page.row(tone, 2, kind_name(walk.kind), &checked_row(walk));
    }
    for (name, measured) in [
        ("overlapping loads", check.overlapping),
        ("objects by address", check.sorted_objects),
    ] {
        let times = [measured.median_ns, measured.min_ns, measured.p90_ns].map(nanos);
        let [median, min, p90] = times;
        let cells = checked_cells([String::new(), median, min, p90, String::new()]);
        page.row(Tone::Plain, 2, name, &cells);
    }
    let (tone, verdict) = verdict(check, items);
    page.paragraph(tone, "", &verdict);
}

pub(crate) fn kind_name(kind: WalkKind) -> &'static str {
    match kind {
        WalkKind::InOrder => "fields in this order",
        WalkKind::ByAddress => "fields by address",
        WalkKind::Packed => "fields moved together",
    }
}

fn checked_row(walk: &CheckedWalk) -> Columns {
    let measured = walk.measured;
    checked_cells([
        nanos(walk.predicted_ns),
        nanos(measured.median_ns),
        nanos(measured.min_ns),
        nanos(measured.p90_ns),
        tied(format!("{:+.1} %", walk.deviation() * 100.0)),
    ])
}

fn checked_cells(cells: [String; 5]) -> Columns {
    Columns::right([10, 10, 9, 9, 11].into_iter().zip(cells))
}

fn verdict(check: &WalkCheck, items: u64) -> (Tone, String) {
    let basis = match check.basis {
        CheckBasis::SameRun => "latencies measured between the walks",
        CheckBasis::Table => "latencies in the file",
    };
    let tolerance = tied(format!("{:.0} %", check.tolerance * 100.0));
    let whole = check
        .walks
        .iter()
        .find(|walk| walk.kind == WalkKind::InOrder);
    let whole = whole.map_or_else(String::new, |walk| {
        #[expect(clippy::cast_possible_truncation, reason = "far below 2^63 ns")]
        let time = |item_ns: f64| Nanos((item_ns * items as f64) as i64);
        format!(
            " With the fields in this order, half of the walks over {items} objects took at most \
             {}, and nine of ten at most {}.",
            time(walk.measured.median_ns),
            time(walk.measured.p90_ns)
        )
    });
    let method = format!(
        "Each walk was measured {} times on CPU {}; the column measured has the medians.{whole}",
        check.rounds, check.cpu
    );
    let pages = if check.huge_pages.is_huge() {
        ""
    } else {
        " The kernel provided no huge pages for the objects, so the walks include the cost of \
         address translation."
    };
    if check.fits() {
        let text = format!(
            "The model fits: the median of each walk is within {tolerance} of its prediction, \
             which uses the {basis}. {method}{pages}"
        );
        return (Tone::Plain, text);
    }
    let missed: Vec<&str> = check
        .walks
        .iter()
        .filter(|walk| walk.deviation().abs() > check.tolerance)
        .map(|walk| kind_name(walk.kind))
        .collect();
    let text = format!(
        "The model does not fit ({}): the median deviates by more than {tolerance} from the \
         prediction, which uses the {basis}. Use the measured time instead. {method}{pages}",
        missed.join(", ")
    );
    (Tone::Warning, text)
}

fn summary(walk: &MemWalk) -> String {
    let mut text = format!(
        "Size of an object: {}, of which {} in holes ({}). Cache lines touched per object: {}, or \
         {} if the touched fields were moved together. Predicted time of a walk: {}",
        bytes_text(walk.size_bytes),
        bytes_text(walk.hole_bytes),
        walk.holes,
        walk.lines,
        walk.packed_lines,
        walk.interleaved.stall
    );
    if let Some(every) = walk.every {
        text.push_str(" every ");
        text.push_str(&every.to_string());
    }
    text.push('.');
    text
}

fn cost_cells(walk: &MemWalk, cost: WalkCost) -> Columns {
    let share = walk.every.map_or_else(String::new, |every| {
        percent(cost.stall.share_of(every).min(1.0))
    });
    costs([
        bytes_text(cost.working_set_bytes),
        nanos(cost.item_ns),
        cost.stall.to_string(),
        share,
    ])
}

fn costs(cells: [String; 4]) -> Columns {
    Columns::right([12, 11, 9, 14].into_iter().zip(cells))
}

fn touch_cells(offset: &str, size: &str, line: &str, when: &str) -> Columns {
    Columns::right([(8, offset), (8, size), (6, line)]).and_left(2, 5, when)
}

fn fit_cells(size: &str, now: &str, packed: &str) -> Columns {
    Columns::right([(10, size), (12, now), (16, packed)])
}
