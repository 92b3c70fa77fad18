//! Plot of the predicted time per object by the number of objects in a walk.

use std::fmt::Write;

use ticktax_model::comparison::Unit;
use ticktax_model::mem::{CheckedWalk, MemWalk, WalkKind, WalkPoint};

use super::Plot;
use super::axis::Axis;
use super::chart::{Chart, key, key_from};
use crate::html::escape::text;
use crate::text::{Topic, kind_name};

/// Height of the plot in SVG units.
const HEIGHT: f64 = 320.0;

/// Variants of a walk, in the order of their series.
const KINDS: [WalkKind; 3] = [WalkKind::InOrder, WalkKind::ByAddress, WalkKind::Packed];

/// First series of the measured walks.
const MEASURED: usize = KINDS.len();

/// Draws the predicted times, the numbers of objects that fit in each cache, and the measured times
/// of a checked walk. Returns `None` if nothing was predicted.
pub(super) fn plot(walk: &MemWalk) -> Option<Plot> {
    let first = walk.curve.first()?.items;
    let last = walk.curve.last()?.items;
    let measured = walk.check.iter().flat_map(|check| &check.walks);
    let measured: Vec<&CheckedWalk> = measured.collect();
    let times = walk
        .curve
        .iter()
        .flat_map(|point| KINDS.map(|kind| predicted(point, kind)));
    let values = times.chain(measured.iter().map(|walk| walk.measured.median_ns));
    let y = Axis::fitting("time per object", values, Unit::Ns);
    let x = Axis::linear(
        "number of objects (log scale)",
        (log2(first), log2(last.max(first + 1))),
        Unit::None,
    )
    .with_ticks(ticks(first, last));
    let mut chart = Chart::new(x, y, HEIGHT);
    for (place, kind) in KINDS.into_iter().enumerate() {
        let point = |point: &WalkPoint| (log2(point.items), predicted(point, kind));
        chart.line(place, walk.curve.iter().map(point));
    }
    for (place, kind) in KINDS.into_iter().enumerate() {
        let of_kind = measured.iter().filter(|walk| walk.kind == kind);
        let at = log2(walk.items);
        chart.marks(
            MEASURED + place,
            of_kind.map(|walk| (at, walk.measured.median_ns)),
        );
    }
    let fits = walk
        .fits
        .iter()
        .filter(|fit| (first..=last).contains(&fit.items));
    let edges: Vec<(f64, f64, String)> = fits
        .map(|fit| {
            (
                log2(fit.items),
                at(&walk.curve, fit.items),
                fit.level.clone(),
            )
        })
        .collect();
    chart.stems(edges.iter().map(|(at, time, _)| (*at, *time)));
    chart.labels(edges);
    let mut html = legend(walk);
    let mut keys = key(KINDS.map(kind_name).into_iter(), true);
    if !measured.is_empty() {
        let names = KINDS.map(|kind| format!("{}, measured", kind_name(kind)));
        keys.push_str(&key_from(MEASURED, names.iter().map(String::as_str), false));
    }
    html.push_str(&chart.finish("Time per object by number of objects", &keys));
    table(&mut html, walk);
    Some(Plot {
        id: "walk",
        title: "Time per object by number of objects",
        topic: Topic::Other,
        html,
    })
}

fn predicted(point: &WalkPoint, kind: WalkKind) -> f64 {
    match kind {
        WalkKind::InOrder => point.interleaved_ns,
        WalkKind::ByAddress => point.sequential_ns,
        WalkKind::Packed => point.packed_ns,
    }
}

fn log2(count: u64) -> f64 {
    (count.max(1) as f64).log2()
}

/// Returns the predicted time for the fields in the loop's order at a number of objects.
fn at(curve: &[WalkPoint], items: u64) -> f64 {
    let point = curve.iter().find(|point| point.items >= items);
    point
        .or(curve.last())
        .map_or(0.0, |point| point.interleaved_ns)
}

/// Returns a tick for every second power of two.
fn ticks(first: u64, last: u64) -> Vec<(f64, String)> {
    let powers = (first.max(1).ilog2()..=last.max(1).ilog2()).step_by(2);
    let tick = |power: u32| (f64::from(power), (1_u64 << power).to_string());
    powers.map(tick).collect()
}

fn legend(walk: &MemWalk) -> String {
    let measured = if walk.check.is_some() {
        " The single marks are measured walks over synthetic objects."
    } else {
        ""
    };
    format!(
        "<p class=\"legend\">Predicted time per object. Vertical lines are the numbers of objects \
         whose touched lines fit in each cache.{measured}</p>\n"
    )
}

fn table(out: &mut String, walk: &MemWalk) {
    out.push_str(
        "<details>\n<summary>Numbers</summary>\n<div class=\"scroll\" role=\"group\" \
         tabindex=\"0\" aria-label=\"Time per object as numbers\">\n\
         <table>\n<caption class=\"unseen\">Time per object as numbers</caption>\n<thead>\n<tr>\
         <th scope=\"col\">objects</th>",
    );
    for kind in KINDS {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<th scope=\"col\">{}, ns</th>", text(kind_name(kind)));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for point in &walk.curve {
        let [in_order, by_address, packed] = KINDS.map(|kind| predicted(point, kind));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{in_order:.2}</td><td>{by_address:.2}</td>\
             <td>{packed:.2}</td></tr>",
            point.items
        );
    }
    let measured = walk.check.iter().flat_map(|check| &check.walks);
    for row in measured {
        let cells = KINDS.map(|kind| {
            if kind == row.kind {
                format!("<td>{:.2}</td>", row.measured.median_ns)
            } else {
                "<td></td>".to_owned()
            }
        });
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}, measured</th>{}</tr>",
            walk.items,
            cells.concat()
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}
