//! Plots of periodic sources: the phase of their events over time, and the spectrum of periods.

use std::fmt::Write;

use ticktax_model::beats::{BeatLine, BeatStatement, EventSample, PeriodSpectrum};
use ticktax_model::comparison::Unit;

use super::Plot;
use super::axis::Axis;
use super::chart::Chart;
use crate::html::escape::{attribute, text};
use crate::html::quantity::Quantity;
use crate::text::{Topic, with_interval};

/// Heights of the two plots in SVG units.
const PHASES: f64 = 210.0;
const SPECTRUM: f64 = 300.0;
/// Maximum distance between a source's period and its peak in the spectrum, as a fraction of the
/// period.
const NEAR: f64 = 0.02;

/// Draws the phases of each source whose events were sampled, with a dot for each sampled event.
pub(super) fn phases(statement: &BeatStatement) -> Option<Plot> {
    let sampled: Vec<(&BeatLine, &EventSample)> = sampled(statement).collect();
    if sampled.is_empty() {
        return None;
    }
    let mut html = "<p class=\"legend\">Each dot is the start of an event of the source. Its \
         height is the phase: how long after (above 0) or before (below 0) the nearest expected \
         moment the event started. Strictly periodic events form a level line, and events with a \
         slightly different period a slope. Other events of the same source are scattered. If a \
         source has many events, only a random sample from the whole recording is drawn.</p>\n"
        .to_owned();
    let length = statement.window.0.max(1) as f64;
    for (place, (line, sample)) in sampled.iter().enumerate() {
        let times = sample.began.iter().map(|time| time.0 as f64);
        let last = times.fold(length, f64::max);
        let x = Axis::linear(
            "time since the start of the recording",
            (0.0, last),
            Unit::Ns,
        );
        let half = line.rhythm.period / 2.0;
        let y = Axis::linear("phase", (-half, half), Unit::Ns);
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
        title: "Phase plots of periodic sources",
        topic: Topic::Periods,
        html,
    })
}

fn sampled(statement: &BeatStatement) -> impl Iterator<Item = (&BeatLine, &EventSample)> {
    let lines = statement.beats.iter();
    let with = lines.filter_map(|line| Some((line, line.sample.as_ref()?)));
    with.filter(|(_, sample)| !sample.began.is_empty())
}

/// Returns a source's title in the plots. It starts with a number that also labels the source's
/// peak in the spectrum.
fn titled(place: usize, line: &BeatLine, sample: &EventSample) -> String {
    let cpu = sample
        .cpu
        .map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
    let rhythm = &line.rhythm;
    let every = with_interval(rhythm.period, rhythm.low, rhythm.high);
    format!("{}. {}{cpu}: every {every}", place + 1, line.name)
}

/// Writes a table of the quantiles of the phases.
fn table(out: &mut String, sampled: &[(&BeatLine, &EventSample)]) {
    let title = "Phases as numbers";
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title}\">\n<table>\n\
         <caption class=\"unseen\">{title}</caption>\n<thead>\n<tr><td></td><th \
         scope=\"col\">period</th>\
         <th scope=\"col\">dots</th><th scope=\"col\">events</th><th scope=\"col\">earliest \
         phase</th>\
         <th scope=\"col\">p10</th><th scope=\"col\">median</th><th scope=\"col\">p90</th>\
         <th scope=\"col\">latest phase</th></tr>\n</thead>\n<tbody>\n"
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
            "<tr><th scope=\"row\">{}</th>",
            text(&titled(place, line, sample))
        );
        Quantity::ns(line.rhythm.period).cell(out);
        let _ = write!(
            out,
            "<td>{}</td><td>{}</td>",
            sample.began.len(),
            sample.events
        );
        for tenths in [0, 1, 5, 9, 10] {
            let phase = phases.get(last * tenths / 10).copied().unwrap_or_default();
            Quantity::ns(phase).cell(out);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Draws the spectrum of periods. The peaks of the periodic sources are numbered.
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
    let x = Axis::log("period", (spectrum.shortest, spectrum.longest), Unit::Ns);
    let y = Axis::log(
        "strength above the noise (nats)",
        (weakest, strongest),
        Unit::None,
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
    let name = "Spectrum of periods";
    let below = "<p class=\"legend\">Both axes are logarithmic. Each line is the strongest period \
         within a narrow step of the axis. Its height compares the average power of that period in \
         the events of one source with the noise around it, as a natural logarithm (nats). The \
         numbers above the lines refer to the sources below. Every periodic source also has lines \
         at a half, a third and so on of its period. The spectrum only selects candidates. A \
         second test confirms them, and the false-alarm probability is from that test: the \
         probability that chance alone looks this periodic. A dash means that the source has no \
         line near its \
         period.</p>\n";
    let mut html = chart.finish(name, below);
    let _ = write!(
        html,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{0} as \
         numbers\">\n<table>\n\
         <caption class=\"unseen\">{0} as numbers</caption>\n<thead>\n<tr><td></td><th \
         scope=\"col\">period of the peak</th>\
         <th scope=\"col\">strength (nats)</th><th scope=\"col\">false-alarm \
         probability</th></tr>\n</thead>\n<tbody>\n",
        attribute(name)
    );
    for (place, line, sample, peak) in peaks {
        let (at, by) = peak.map_or_else(
            || (Quantity::unknown(), "–".to_owned()),
            |(period, strength)| (Quantity::ns(period), format!("{strength:.1}")),
        );
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th>",
            text(&titled(place, line, sample))
        );
        at.cell(&mut html);
        let _ = write!(html, "<td>{by}</td>");
        Quantity::chance(line.rhythm.false_alarm).cell(&mut html);
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Some(Plot {
        id: "spectrum",
        title: name,
        topic: Topic::Periods,
        html,
    })
}

/// Returns the strongest spectral line near the source's period, or `None` if the spectrum has no
/// line there.
fn peak(spectrum: &PeriodSpectrum, line: &BeatLine) -> Option<(f64, f64)> {
    let all = spectrum
        .periods
        .iter()
        .zip(&spectrum.strengths)
        .zip(&spectrum.source_index);
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
