//! Times by percentile, on log axes, several over one another.

use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::pace::{Distribution, PaceComparison, PaceStatement};

use super::Plot;
use crate::html::escape::text;

/// Curves in one plot: more could not be told from each other.
const CURVES: usize = 6;

/// The share of the times that may be shorter than the axis.
const FEW: f64 = 0.05;

/// The size of a plot, in its own units, and what of that is left for its axes.
const SIZE: (f64, f64) = (720.0, 360.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// A curve: what it is of, and its times.
struct Curve<'a> {
    name: String,
    times: &'a Distribution,
}

/// The times of a loop's frames.
pub(super) fn of_loop(statement: &PaceStatement) -> Option<Plot> {
    let figures = statement.figures.as_ref()?;
    let curves = [
        ("frame time", &figures.frame_time),
        ("wait to begin", &figures.wait),
        ("late wakeup", &figures.wakeup),
        ("begin to end", &figures.busy),
    ];
    let curves = curves.into_iter().filter_map(|(name, times)| {
        let name = name.to_owned();
        Some(Curve {
            name,
            times: times.as_ref()?,
        })
    });
    plot("Times of frames by percentile", curves.collect())
}

/// How long the frames of each way to pace a loop waited.
pub(super) fn of_ways(statement: &PaceComparison) -> Option<Plot> {
    let curves = statement.rows.iter().filter_map(|row| {
        let spec = &row.spec;
        Some(Curve {
            name: format!("{}/s {} {} {}", spec.rate, spec.work, spec.sleep, spec.rule),
            times: row.figures.as_ref()?.wait.as_ref()?,
        })
    });
    plot("Waits to begin by percentile", curves.collect())
}

fn plot(title: &'static str, mut curves: Vec<Curve<'_>>) -> Option<Plot> {
    curves.retain(|curve| curve.times.count > 1 && curve.times.max > Nanos::ZERO);
    let left_out = curves.len().saturating_sub(CURVES);
    curves.truncate(CURVES);
    let axes = Axes::of(&curves)?;
    let mut html = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        html,
        "<figure>\n<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title}\">\n<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}; the numbers are in the \
         table below\">\n",
        SIZE.0, SIZE.1
    );
    axes.write(&mut html);
    for (place, curve) in curves.iter().enumerate() {
        let _ = writeln!(
            html,
            "<path class=\"curve c{place}\" d=\"{}\"/>",
            axes.path(curve.times)
        );
    }
    html.push_str("</svg>\n</div>\n<figcaption>\n<ul class=\"key\">\n");
    for (place, curve) in curves.iter().enumerate() {
        let _ = writeln!(
            html,
            "<li><svg class=\"sample\" viewBox=\"0 0 40 8\" aria-hidden=\"true\" focusable=\"false\">\
             <path class=\"curve c{place}\" d=\"M0 4H40\"/></svg> {}</li>",
            text(&curve.name)
        );
    }
    html.push_str(
        "</ul>\n<p class=\"legend\">Both axes are logarithmic. Each step is a bucket of the histogram, drawn at its upper \
         end; the last is the longest time. What is shorter than the axis lies at its lower edge.",
    );
    if left_out > 0 {
        let _ = write!(html, " {left_out} more are in the table of frames.");
    }
    html.push_str("</p>\n</figcaption>\n</figure>\n");
    table(&mut html, title, &curves);
    Some(Plot {
        id: "curves",
        title,
        html,
    })
}

/// The times that are known, as numbers.
fn table(out: &mut String, title: &str, curves: &[Curve<'_>]) {
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title}, as numbers\">\n<table>\n\
         <caption class=\"unseen\">{title}, as numbers</caption>\n<thead>\n<tr><td></td><th scope=\"col\">n</th>\
         <th scope=\"col\">shortest (ns)</th>"
    );
    let mut told: Vec<f64> = Vec::new();
    for quantile in curves.iter().flat_map(|curve| &curve.times.quantiles) {
        if !told.iter().any(|q| (q - quantile.q).abs() < 1e-9) {
            told.push(quantile.q);
        }
    }
    told.sort_by(f64::total_cmp);
    for q in &told {
        let _ = write!(out, "<th scope=\"col\">{} (ns)</th>", percentile(*q));
    }
    out.push_str("<th scope=\"col\">longest (ns)</th></tr>\n</thead>\n<tbody>\n");
    for Curve { name, times } in curves {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td>",
            text(name),
            times.count,
            times.min.0
        );
        for q in &told {
            let value = times.quantile(*q);
            let value = value.map_or_else(|| "–".to_owned(), |it| it.0.to_string());
            let _ = write!(out, "<td>{value}</td>");
        }
        let _ = writeln!(out, "<td>{}</td></tr>", times.max.0);
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// A share of times that lie below, as it is called.
fn percentile(q: f64) -> String {
    let percent = format!("{:.4}", 100.0 * q);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// What lies where: percentiles by the share that is above them, times by their logarithm.
struct Axes {
    /// Powers of ten between the first percentile and the last.
    decades: f64,
    /// Powers of ten of the shortest time and the longest.
    times: (f64, f64),
}

impl Axes {
    fn of(curves: &[Curve<'_>]) -> Option<Self> {
        let most = curves.iter().map(|curve| curve.times.count).max()?;
        let ends = curves.iter().map(|curve| ends(curve.times));
        let (low, high) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let low = low.log10().floor();
        Some(Self {
            decades: (most as f64).log10().max(1.0),
            times: (low, high.log10().ceil().max(low + 1.0)),
        })
    }

    /// Where the percentile lies that this share of times is above.
    fn x(&self, above: f64) -> f64 {
        LEFT + (SIZE.0 - LEFT - RIGHT) * (-above.log10() / self.decades).clamp(0.0, 1.0)
    }

    fn y(&self, ns: f64) -> f64 {
        let (low, high) = self.times;
        let part = (ns.max(1.0).log10() - low) / (high - low);
        SIZE.1 - BOTTOM - (SIZE.1 - TOP - BOTTOM) * part.clamp(0.0, 1.0)
    }

    /// A step for each bucket.
    fn path(&self, times: &Distribution) -> String {
        let all = times.count as f64;
        let mut path = String::new();
        let mut below = 0;
        for bucket in times.buckets.iter().filter(|bucket| bucket.count > 0) {
            let begin = (all - below as f64) / all;
            below += bucket.count;
            // The last time has itself above it.
            let end = ((all - below as f64) / all).max(1.0 / all);
            let end_of_bucket = bucket.below.min(times.max).0 as f64;
            let (y, from, to) = (self.y(end_of_bucket), self.x(begin), self.x(end));
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{from:.1} {y:.1}H{to:.1}");
        }
        path
    }

    fn write(&self, out: &mut String) {
        let (left, right) = (LEFT, SIZE.0 - RIGHT);
        let (top, bottom) = (TOP, SIZE.1 - BOTTOM);
        let mut power = self.times.0;
        while power <= self.times.1 + 1e-9 {
            let ns = 10f64.powf(power);
            let y = self.y(ns);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 6.0,
                y + 4.0,
                unit(ns)
            );
            power += 1.0;
        }
        for (above, name) in [
            (1.0, "0"),
            (0.5, "50"),
            (0.1, "90"),
            (0.01, "99"),
            (1e-3, "99.9"),
            (1e-4, "99.99"),
            (1e-5, "99.999"),
        ] {
            if -f64::log10(above) > self.decades + 1e-9 {
                break;
            }
            let x = self.x(above);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/><text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{name}</text>",
                bottom + 18.0
            );
        }
        let _ = writeln!(
            out,
            "<text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\">percentile (% of times that lie below)</text>",
            f64::midpoint(left, right),
            SIZE.1 - 8.0
        );
    }
}

/// From where to where the axis of times goes, in ns: the few that are shortest would take most of it, and what is 0 has
/// no logarithm.
fn ends(times: &Distribution) -> (f64, f64) {
    let mut below = 0;
    let first = times.buckets.iter().find(|bucket| {
        below += bucket.count;
        below as f64 >= FEW * times.count as f64
    });
    let first = first.map_or(times.max, |bucket| bucket.below.min(times.max));
    (first.0.max(1) as f64, times.max.0.max(1) as f64)
}

/// A power of ten of nanoseconds, as it is called.
fn unit(ns: f64) -> String {
    match ns {
        ..999.0 => format!("{ns:.0} ns"),
        ..999e3 => format!("{:.0} µs", ns / 1e3),
        ..999e6 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.0} s", ns / 1e9),
    }
}
