//! Plots of times by percentile, on logarithmic axes. A plot can contain several curves.

use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::comparison::{Comparison, Experiment, Unit};
use ticktax_model::histogram::Bucket;
use ticktax_model::pace::{Distribution, PaceStatement, Quantile};
use ticktax_model::statement::Statement;

use super::Plot;
use super::axis::Axis;
use super::chart::{Chart, SERIES, key};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::{Topic, arm_name};

/// Maximum share of the times that may be too short for the axis.
const FEW: f64 = 0.05;
/// Height of a plot in SVG units.
const HEIGHT: f64 = 370.0;

/// A distribution of times that is drawn as a curve.
struct Curve<'a> {
    name: String,
    count: u64,
    /// Shortest time. `None` if it is unknown.
    min: Option<Nanos>,
    max: Nanos,
    quantiles: Vec<Quantile>,
    buckets: &'a [Bucket],
}

impl<'a> Curve<'a> {
    fn new(name: String, times: &'a Distribution) -> Self {
        Self {
            name,
            count: times.count,
            min: Some(times.min),
            max: times.max,
            quantiles: times.quantiles.clone(),
            buckets: &times.buckets,
        }
    }
}

/// Draws the times of a loop's frames by percentile.
pub(super) fn loop_plot(statement: &PaceStatement) -> Option<Plot> {
    let figures = statement.figures.as_ref()?;
    let curves = [
        ("frame time", &figures.frame_time),
        ("start delay", &figures.wait),
        ("wake-up latency", &figures.wakeup),
        ("start to end", &figures.busy),
    ];
    let curves = curves
        .into_iter()
        .filter_map(|(name, times)| Some(Curve::new(name.to_owned(), times.as_ref()?)));
    plot("Frame timing by percentile", curves.collect())
}

/// Draws the wake-up latencies of the watched program's threads, and the start delays of its
/// frames.
pub(super) fn waits_plot(statement: &Statement) -> Option<Plot> {
    let victim = statement.victim.as_ref()?;
    let threads = victim.threads.as_ref();
    let waits =
        threads.and_then(|threads| threads.latency.as_ref().zip(Some(&threads.latency_buckets)));
    let waits = waits.map(|(latency, buckets)| {
        let lengths = latency.lengths;
        let known = [(0.5, Some(lengths.median)), (0.99, lengths.p99)];
        let known = known
            .into_iter()
            .filter_map(|(q, value)| Some(Quantile { q, value: value? }));
        Curve {
            name: format!("wake-up latency of {}", victim.name),
            count: latency.count,
            min: None,
            max: lengths.max,
            quantiles: known.collect(),
            buckets,
        }
    });
    let frames = victim.frames.as_ref();
    let frames = frames.and_then(|frames| {
        let name = format!("start delay of frames in thread {}", frames.thread);
        Some(Curve::new(name, frames.figures.wait.as_ref()?))
    });
    let curves = waits
        .into_iter()
        .chain(frames)
        .filter(|curve| !curve.buckets.is_empty());
    plot("Waits by percentile", curves.collect())
}

/// Draws the start delays of the frames in each loop that was compared.
pub(super) fn comparison_plot(comparison: &Comparison) -> Option<Plot> {
    let Experiment::Loops(record) = &comparison.experiment else {
        return None;
    };
    let arms = comparison.arms.iter().zip(&record.loops);
    let curves = arms.filter_map(|(arm, row)| {
        let name = arm_name(comparison, arm);
        Some(Curve::new(name, row.figures.as_ref()?.wait.as_ref()?))
    });
    plot("Start delay by percentile", curves.collect())
}

fn plot(title: &'static str, mut curves: Vec<Curve<'_>>) -> Option<Plot> {
    curves.retain(|curve| curve.count > 1 && curve.max > Nanos::ZERO);
    let left_out = curves.len().saturating_sub(SERIES);
    curves.truncate(SERIES);
    let most = curves.iter().map(|curve| curve.count).max()?;
    let ends = curves.iter().map(ends);
    let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let (x, y) = (Axis::percentiles(most), Axis::log("time", ends, Unit::Ns));
    let mut chart = Chart::new(x, y, HEIGHT);
    for (place, curve) in curves.iter().enumerate() {
        chart.steps(place, steps(curve).into_iter());
    }
    let mut below = key(curves.iter().map(|curve| &*curve.name), true);
    below.push_str(
        "<p class=\"legend\">Both axes are logarithmic. Each step is a histogram bucket, drawn at \
         its upper limit. The last step is the longest time. Times shorter than the axis are drawn \
         at its lower edge.",
    );
    if left_out > 0 {
        // Writing to a `String` cannot fail.
        let _ = write!(
            below,
            " {left_out} more variants are in the table of frames."
        );
    }
    below.push_str("</p>\n");
    let mut html = chart.finish(title, &below);
    table(&mut html, title, &curves);
    Some(Plot {
        id: "curves",
        title,
        topic: Topic::Waits,
        html,
    })
}

/// Returns a step for each bucket that contains times. A step consists of the share of times above
/// the bucket's lower end, the share above its upper end, and the time at its upper end.
fn steps(curve: &Curve<'_>) -> Vec<(f64, f64, f64)> {
    let all = curve.count as f64;
    let mut below = 0;
    let any = curve.buckets.iter().filter(|bucket| bucket.count > 0);
    any.map(|bucket| {
        let begin = (all - below as f64) / all;
        below += bucket.count;
        // The share of the longest time is at least that of a single time, because 0 has no
        // logarithm.
        let end = ((all - below as f64) / all).max(1.0 / all);
        (begin, end, bucket.below.min(curve.max).0 as f64)
    })
    .collect()
}

/// Writes a table of the known times.
fn table(out: &mut String, title: &str, curves: &[Curve<'_>]) {
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title} as \
         numbers\">\n<table>\n\
         <caption class=\"unseen\">{title} as numbers</caption>\n<thead>\n<tr><td></td><th \
         scope=\"col\">count</th>\
         <th scope=\"col\">min</th>"
    );
    let mut percentiles: Vec<f64> = Vec::new();
    for quantile in curves.iter().flat_map(|curve| &curve.quantiles) {
        if !percentiles.iter().any(|q| (q - quantile.q).abs() < 1e-9) {
            percentiles.push(quantile.q);
        }
    }
    percentiles.sort_by(f64::total_cmp);
    for q in &percentiles {
        let _ = write!(out, "<th scope=\"col\">{}</th>", percentile(*q));
    }
    out.push_str("<th scope=\"col\">max</th></tr>\n</thead>\n<tbody>\n");
    let known = |value: Option<Nanos>| value.map_or_else(Quantity::unknown, Quantity::time);
    for curve in curves {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td>",
            text(&curve.name),
            curve.count,
        );
        known(curve.min).cell(out);
        for q in &percentiles {
            let mut quantiles = curve.quantiles.iter();
            let quantile = quantiles.find(|quantile| (quantile.q - q).abs() < 1e-9);
            known(quantile.map(|quantile| quantile.value)).cell(out);
        }
        known(Some(curve.max)).cell(out);
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Returns the name of a percentile, such as `p99` or `median`.
fn percentile(q: f64) -> String {
    if (q - 0.5).abs() < 1e-9 {
        return "median".to_owned();
    }
    let percent = format!("{:.4}", 100.0 * q);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the range of the time axis in ns. It leaves out the shortest times, because they would
/// take up most of a logarithmic axis. It also leaves out 0, which has no logarithm.
fn ends(curve: &Curve<'_>) -> (f64, f64) {
    let mut below = 0;
    let first = curve.buckets.iter().find(|bucket| {
        below += bucket.count;
        below as f64 >= FEW * curve.count as f64
    });
    let first = first.map_or(curve.max, |bucket| bucket.below.min(curve.max));
    (first.0.max(1) as f64, curve.max.0.max(1) as f64)
}
