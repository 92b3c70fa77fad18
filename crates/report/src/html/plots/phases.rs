//! Plots of periodic sources: the phase of their events over time, and the spectrum of periods.

use std::fmt::Write;

use ticktax_model::beats::{BeatLine, BeatStatement, EventSample, PeriodSpectrum};

use super::Plot;
use super::axis::{Axis, Unit};
use super::chart::Chart;
use crate::html::escape::{attribute, text};
use crate::text::with_interval;

/// Heights of plots in SVG units.
const PHASES: f64 = 210.0;
const SPECTRUM: f64 = 300.0;
/// Maximum relative distance between a period and its peak in the spectrum.
const NEAR: f64 = 0.02;

/// Draws a dot for each sampled event of each source that has a sample.
pub(super) fn phases(statement: &BeatStatement) -> Option<Plot> {
    let sampled: Vec<(&BeatLine, &EventSample)> = sampled(statement).collect();
    if sampled.is_empty() {
        return None;
    }
    let mut html = "<p class=\"legend\">A dot an event: when it began, and how long before or after the nearest beat of \
         the period. What keeps to the period lies on a level line, what runs away from it on a slope; events of the same \
         source that are no part of the beat lie anywhere. Of many events some are drawn, chosen at random from all \
         parts of the run.</p>\n"
        .to_owned();
    let length = statement.window.0.max(1) as f64;
    for (place, (line, sample)) in sampled.iter().enumerate() {
        let times = sample.began.iter().map(|time| time.0 as f64);
        let last = times.fold(length, f64::max);
        let x = Axis::linear("time since the run began", (0.0, last), Unit::Time);
        let half = line.rhythm.period / 2.0;
        let y = Axis::linear(
            "phase: time from the nearest beat",
            (-half, half),
            Unit::Time,
        );
        let mut chart = Chart::new(x, y, PHASES);
        let dots = sample.began.iter();
        chart.dots(dots.map(|&time| (time.0 as f64, sample.phase(time, line.rhythm.period))));
        let title = titled(place, line, sample);
        // Writing to a `String` cannot fail.
        let _ = writeln!(html, "<h3>{}</h3>", text(&title));
        html.push_str(&chart.finish(&format!("Phases of {title}"), ""));
    }
    table(&mut html, &sampled);
    Some(Plot {
        id: "phases",
        title: "Beats: events by phase of the period",
        html,
    })
}

fn sampled(statement: &BeatStatement) -> impl Iterator<Item = (&BeatLine, &EventSample)> {
    let lines = statement.beats.iter();
    let with = lines.filter_map(|line| Some((line, line.sample.as_ref()?)));
    with.filter(|(_, sample)| !sample.began.is_empty())
}

/// The title of a source in plots. Its number also labels its peak in the spectrum.
fn titled(place: usize, line: &BeatLine, sample: &EventSample) -> String {
    let cpu = sample
        .cpu
        .map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
    let rhythm = &line.rhythm;
    let every = with_interval(rhythm.period, rhythm.low, rhythm.high);
    format!("{}. {}{cpu}: every {every}", place + 1, line.name)
}

/// The phases as numbers: their quantiles.
fn table(out: &mut String, sampled: &[(&BeatLine, &EventSample)]) {
    let title = "Phases, as numbers";
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title}\">\n<table>\n\
         <caption class=\"unseen\">{title}</caption>\n<thead>\n<tr><td></td><th scope=\"col\">period (ns)</th>\
         <th scope=\"col\">events drawn</th><th scope=\"col\">of</th><th scope=\"col\">earliest phase (ns)</th>\
         <th scope=\"col\">p10 (ns)</th><th scope=\"col\">median (ns)</th><th scope=\"col\">p90 (ns)</th>\
         <th scope=\"col\">latest (ns)</th></tr>\n</thead>\n<tbody>\n"
    );
    for (place, (line, sample)) in sampled.iter().enumerate() {
        let all = sample.began.iter();
        let mut phases: Vec<f64> = all
            .map(|&time| sample.phase(time, line.rhythm.period))
            .collect();
        phases.sort_by(f64::total_cmp);
        let last = phases.len().saturating_sub(1);
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{:.0}</td><td>{}</td><td>{}</td>",
            text(&titled(place, line, sample)),
            line.rhythm.period,
            sample.began.len(),
            sample.of
        );
        for tenths in [0, 1, 5, 9, 10] {
            let phase = phases.get(last * tenths / 10).copied().unwrap_or_default();
            let _ = write!(out, "<td>{phase:.0}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Draws the spectrum. The peaks of the periodic sources are numbered.
pub(super) fn spectrum(statement: &BeatStatement) -> Option<Plot> {
    let spectrum = statement.spectrum.as_ref()?;
    let points = || {
        spectrum
            .periods
            .iter()
            .copied()
            .zip(spectrum.strengths.iter().copied())
    };
    let strongest = points().map(|point| point.1).fold(0.0, f64::max);
    if strongest <= 0.0 || spectrum.shortest <= 0.0 {
        return None;
    }
    let weakest = points()
        .map(|point| point.1)
        .filter(|strength| *strength > 0.0)
        .fold(strongest, f64::min);
    let x = Axis::log("period", (spectrum.shortest, spectrum.longest), Unit::Time);
    let y = Axis::log(
        "how much it stands out (nats)",
        (weakest, strongest),
        Unit::Number,
    );
    let mut chart = Chart::new(x, y, SPECTRUM);
    chart.stems(points());
    let peaks: Vec<_> = sampled(statement)
        .enumerate()
        .map(|(place, (line, sample))| (place, line, sample, peak(spectrum, line)))
        .collect();
    let labels = peaks.iter();
    let labels = labels.filter_map(|(place, _, _, peak)| {
        let (period, strength) = (*peak)?;
        Some((period, strength, (place + 1).to_string()))
    });
    chart.labels(labels.collect());
    let name = "Periods that stand out";
    let below = "<p class=\"legend\">Both axes are logarithmic. A line a period: the one that stands out most of each of \
         equal steps of the axis, by the averaged power among the events of the sources that are listed, against the noise \
         around it. Numbers are those of the beats below. A half, a third and so on of a beat's period stand out with \
         it. This is the test that candidates are chosen by; a beat has passed another, which its false-alarm \
         probability is of. A dash: near the period, its source has no line.</p>\n";
    let mut html = chart.finish(name, below);
    let _ = write!(
        html,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{0}, as numbers\">\n<table>\n\
         <caption class=\"unseen\">{0}, as numbers</caption>\n<thead>\n<tr><td></td><th scope=\"col\">period of the peak (ns)</th>\
         <th scope=\"col\">stands out by (nats)</th><th scope=\"col\">false-alarm probability</th></tr>\n</thead>\n<tbody>\n",
        attribute(name)
    );
    for (place, line, sample, peak) in peaks {
        let (at, by) = peak.map_or_else(
            || ("–".to_owned(), "–".to_owned()),
            |(period, strength)| (format!("{period:.0}"), format!("{strength:.1}")),
        );
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{at}</td><td>{by}</td><td>{:.0e}</td></tr>",
            text(&titled(place, line, sample)),
            line.rhythm.false_alarm
        );
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Some(Plot {
        id: "spectrum",
        title: name,
        html,
    })
}

/// The strongest spectral line of a source near its period.
fn peak(spectrum: &PeriodSpectrum, line: &BeatLine) -> Option<(f64, f64)> {
    let all = spectrum
        .periods
        .iter()
        .zip(&spectrum.strengths)
        .zip(&spectrum.of);
    let is_of_line = |place: u64| {
        let name = usize::try_from(place)
            .ok()
            .and_then(|place| spectrum.sources.get(place));
        name == Some(&line.name)
    };
    let near = all.filter(|((period, _), source)| {
        is_of_line(**source) && (*period / line.rhythm.period - 1.0).abs() < NEAR
    });
    let best = near.max_by(|a, b| a.0.1.total_cmp(b.0.1))?;
    Some((*best.0.0, *best.0.1))
}
