//! A plot of the program's wake-up latencies in two recordings.

use std::fmt::Write;

use ticktax_model::comparison::{Comparison, Experiment, Measure, Unit};

use super::Plot;
use super::axis::Axis;
use super::chart::{Chart, key};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::Topic;

/// The values of both recordings.
type Sides = [Option<f64>; 2];

const WAITS: &str = "Wake-up latency in both recordings";
/// Height of the plot that shows waits, in SVG units.
const HEIGHT: f64 = 300.0;

/// Draws the wake-up latencies of the watched program in both recordings.
pub(super) fn waits(comparison: &Comparison) -> Option<Plot> {
    let Experiment::Recordings(record) = &comparison.experiment else {
        return None;
    };
    let quantiles = [
        (Measure::LatencyMedian, 0.5, "median"),
        (Measure::LatencyP99, 0.01, "p99"),
    ];
    let change_of = |measure: Measure| {
        let metric = comparison.metric(measure.id())?;
        let value = |arm: usize| comparison.arms.get(arm)?.value(metric);
        Some([value(0), value(1)])
    };
    let known: Vec<(f64, &str, Sides)> = quantiles
        .into_iter()
        .filter_map(|(measure, above, name)| Some((above, name, change_of(measure)?)))
        .collect();
    let longest = change_of(Measure::LatencyMax);
    let all = known.iter().map(|entry| entry.2).chain(longest);
    let values = all.flatten().flatten();
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    if known.len() < 2 {
        return None;
    }
    let y = Axis::log("wake-up latency", (low, high), Unit::Ns);
    let mut chart = Chart::new(Axis::percentiles(1_000), y, HEIGHT);
    let files = [&record.first.file, &record.second.file];
    for place in 0..2 {
        let points = known.iter();
        chart.line(
            place,
            points.filter_map(|(above, _, change)| Some((*above, change[place]?))),
        );
    }
    let below = key(files.into_iter().map(|file| &**file), false)
        + "<p class=\"legend\">Both axes are logarithmic. Each symbol is a percentile that both \
            recordings have. The lines only connect the \
           symbols.</p>\n";
    let mut html = chart.finish(WAITS, &below);
    let longest = longest.map(|change| (0.0, "max", change));
    let all: Vec<_> = known.iter().copied().chain(longest).collect();
    table(&mut html, files, &all);
    Some(Plot {
        id: "waits",
        title: WAITS,
        topic: Topic::Other,
        html,
    })
}

/// Writes a table of the percentiles of both recordings.
fn table(out: &mut String, files: [&String; 2], all: &[(f64, &str, Sides)]) {
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{WAITS} as \
         numbers\">\n<table>\n\
         <caption class=\"unseen\">{WAITS} as numbers</caption>\n<thead>\n<tr><td></td>"
    );
    for (_, name, _) in all {
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for (place, file) in files.into_iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", text(file));
        for (_, _, change) in all {
            change[place]
                .map_or_else(Quantity::unknown, Quantity::ns)
                .cell(out);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}
