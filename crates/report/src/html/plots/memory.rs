//! Plot of memory latency by size of the working set.

use std::fmt::Write;

use ticktax_model::comparison::Unit;
use ticktax_model::mem::{LatencyPoint, MemLatency};

use super::Plot;
use super::axis::Axis;
use super::chart::{Chart, key};
use crate::html::escape::text;
use crate::text::Topic;

/// Height of the plot in SVG units.
const HEIGHT: f64 = 320.0;

/// Draws the latencies on huge and on small pages, with the sizes of the reported caches. Returns
/// `None` if nothing was measured.
pub(super) fn plot(measured: &MemLatency) -> Option<Plot> {
    let first = measured.points.first()?.size_bytes;
    let last = measured.points.last()?.size_bytes;
    let small = |point: &LatencyPoint| (size(point), point.small.median_ns);
    let huge = |point: &LatencyPoint| Some((size(point), point.huge?.median_ns));
    let all = measured.points.iter();
    let values = all.flat_map(|point| {
        let huge = point.huge.map(|latency| latency.median_ns);
        [Some(point.small.median_ns), huge].into_iter().flatten()
    });
    let y = Axis::fitting("latency per load", values, Unit::Ns);
    let x = Axis::linear(
        "size of the working set (log scale)",
        (log2(first), log2(last)),
        Unit::None,
    )
    .with_ticks(octaves(first, last));
    let mut chart = Chart::new(x, y, HEIGHT);
    chart.line(0, measured.points.iter().filter_map(huge));
    chart.line(1, measured.points.iter().map(small));
    let edges = measured
        .levels
        .iter()
        .filter_map(|level| Some((&level.name, level.reported_bytes?, level.latency_ns)));
    let edges: Vec<(f64, f64, String)> = edges
        .filter(|(_, bytes, _)| (first..=last).contains(bytes))
        .map(|(name, bytes, latency)| (log2(bytes), latency, name.clone()))
        .collect();
    chart.stems(edges.iter().map(|(at, latency, _)| (*at, *latency)));
    chart.labels(edges);
    let names = ["huge pages", "small pages"].into_iter();
    let mut html = "<p class=\"legend\">Each point is the median of many short measurements of \
         loads that depend on one another. Vertical lines are the cache sizes that the kernel \
         reports.</p>\n"
        .to_owned();
    html.push_str(&chart.finish("Latency by size of the working set", &key(names, true)));
    table(&mut html, measured);
    Some(Plot {
        id: "latency",
        title: "Latency by size of the working set",
        topic: Topic::Other,
        html,
    })
}

fn size(point: &LatencyPoint) -> f64 {
    log2(point.size_bytes)
}

fn log2(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

/// Returns a tick for every second power of two.
fn octaves(first: u64, last: u64) -> Vec<(f64, String)> {
    let powers = (first.max(1).ilog2()..=last.max(1).ilog2()).step_by(2);
    powers
        .map(|power| (f64::from(power), crate::text::bytes_text(1 << power)))
        .collect()
}

fn table(out: &mut String, measured: &MemLatency) {
    out.push_str(
        "<details>\n<summary>Numbers</summary>\n<div class=\"scroll\" role=\"group\" \
         tabindex=\"0\" aria-label=\"Latency by size as numbers\">\n\
         <table>\n<caption class=\"unseen\">Latency by size as numbers</caption>\n<thead>\n<tr>\
         <td></td><th scope=\"col\">huge pages, ns</th><th scope=\"col\">small pages, ns</th>\
         <th scope=\"col\">next line, ns</th><th scope=\"col\">bandwidth, GB/s</th></tr>\n\
         </thead>\n<tbody>\n",
    );
    for point in &measured.points {
        let huge = point
            .huge
            .map_or_else(String::new, |latency| format!("{:.2}", latency.median_ns));
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{huge}</td><td>{:.2}</td><td>{:.2}</td>\
             <td>{:.1}</td></tr>",
            text(&crate::text::bytes_text(point.size_bytes)),
            point.small.median_ns,
            point.next_line_ns,
            1.0 / point.read_ns_per_byte
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}
