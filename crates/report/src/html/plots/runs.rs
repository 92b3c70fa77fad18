//! Plots of every run in a trial, by block and arm. An arm is one setting of the trial.

use std::fmt::Write;

use ticktax_model::comparison::{Comparison, Experiment, RunPurpose, TrialRecord, Unit};

use super::Plot;
use super::arms::{quantity, titled};
use super::axis::Axis;
use super::chart::{Chart, SERIES, key};
use crate::html::escape::{attribute, text};
use crate::text::Topic;

/// Maximum number of metrics drawn.
const METRICS: usize = 4;
/// Height of a plot in SVG units.
const HEIGHT: f64 = 240.0;

/// Draws a plot for each of the first metrics, with one mark per run. Returns `None` if no
/// run counts.
pub(super) fn plot(trial: &Comparison) -> Option<Plot> {
    let Experiment::Trial(record) = &trial.experiment else {
        return None;
    };
    let mut html = "<p class=\"legend\">Each symbol is one measured run. Runs in the same block \
         took place one after the other, and each variant has its own symbol. Failed runs are not \
         drawn.</p>\n"
        .to_owned();
    let before = html.len();
    for place in 0..trial.metrics.len().min(METRICS) {
        metric_plot(&mut html, trial, record, place);
    }
    (html.len() > before).then_some(Plot {
        id: "runs",
        title: "Runs by block",
        topic: Topic::Other,
        html,
    })
}

fn metric_plot(out: &mut String, trial: &Comparison, record: &TrialRecord, place: usize) {
    let metric = &trial.metrics[place];
    let runs: Vec<(u64, usize, f64)> = record
        .runs
        .iter()
        .filter(|run| run.purpose == RunPurpose::Measured && run.succeeded)
        .filter_map(|run| Some((run.block, run.arm, (*run.values.get(place)?)?)))
        .filter(|(_, _, value)| value.is_finite())
        .collect();
    let Some(last) = runs.iter().map(|run| run.0).max() else {
        return;
    };
    let named = titled(&metric.id, metric.unit);
    let low = runs.iter().map(|run| run.2).fold(f64::MAX, f64::min);
    let high = runs.iter().map(|run| run.2).fold(f64::MIN, f64::max);
    let room = 0.06 * (high - low);
    let y = Axis::linear(&named, (low - room, high + room), metric.unit);
    let x =
        Axis::linear("block", (0.5, last as f64 + 1.5), Unit::None).with_ticks(blocks(last + 1));
    let mut chart = Chart::new(x, y, HEIGHT);
    let arms = trial.arms.len().min(SERIES);
    for arm in 0..arms {
        let offset = 0.16 * (arm as f64 - (arms as f64 - 1.0) / 2.0);
        let of_arm = runs.iter().filter(|run| run.1 == arm);
        chart.marks(arm, of_arm.map(|run| (run.0 as f64 + 1.0 + offset, run.2)));
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "<h3>{}</h3>", text(&metric.id));
    let arms_named = trial.arms.iter().take(SERIES).map(|arm| {
        let settings = arm.settings.iter();
        let settings: Vec<String> = settings.map(ToString::to_string).collect();
        format!("{} {}", arm.label, settings.join(" "))
    });
    let keys: Vec<String> = arms_named.collect();
    let key = key(keys.iter().map(String::as_str), false);
    out.push_str(&chart.finish(&format!("Runs by block: {}", metric.id), &key));
    table(out, trial, (&named, metric.unit, &runs));
}

/// Returns the ticks for an axis that shows `count` blocks of runs.
fn blocks(count: u64) -> Vec<(f64, String)> {
    let every = count.div_ceil(12).max(1);
    let shown = (1..=count).filter(|block| block % every == 0 || *block == 1);
    shown
        .map(|block| (block as f64, block.to_string()))
        .collect()
}

fn table(
    out: &mut String,
    trial: &Comparison,
    (named, unit, runs): (&str, Unit, &[(u64, usize, f64)]),
) {
    let title = format!("Runs by block as numbers: {named}");
    let _ = write!(
        out,
        "<details>\n<summary>Numbers</summary>\n<div class=\"scroll\" role=\"group\" \
         tabindex=\"0\" aria-label=\"{}\">\n\
         <table>\n<caption class=\"unseen\">{}</caption>\n<thead>\n<tr><td></td>",
        attribute(&title),
        text(&title)
    );
    for arm in &trial.arms {
        let _ = write!(out, "<th scope=\"col\">{}</th>", text(&arm.label));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    let last = runs.iter().map(|run| run.0).max().unwrap_or_default();
    for block in 0..=last {
        let _ = write!(out, "<tr><th scope=\"row\">block {}</th>", block + 1);
        for arm in 0..trial.arms.len() {
            let values = runs.iter().filter(|run| run.0 == block && run.1 == arm);
            out.push_str("<td>");
            for (place, run) in values.enumerate() {
                out.push_str(if place > 0 { ", " } else { "" });
                quantity(unit, run.2).span(out);
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}
