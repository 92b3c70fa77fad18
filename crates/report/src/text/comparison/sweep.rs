//! The page about a sweep. It shows the outcome, and which arms (settings) have the highest and
//! lowest values.

use ticktax_model::comparison::{Arm, Comparison, SweepRecord, Unit};

use super::super::TextStyle;
use super::super::block::Written;
use super::super::numbers::{counted, grouped, percent};
use super::super::page::{Page, Tone, clean, tied};
use super::super::value::value;
use super::{arm_name, setting};

/// Renders the outcome of a sweep as a page that ends with a line break.
pub(super) fn page(comparison: &Comparison, sweep: &SweepRecord, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    let title = format!(
        "ticktax: sweep of {} of {}",
        counted(sweep.combinations, "combination"),
        clean(&sweep.scenario)
    );
    page.line(Tone::Strong, &title);
    let axes = sweep.axes.iter();
    let axes =
        axes.map(|(name, count)| tied(format!("{} of {}", counted(*count, "value"), clean(name))));
    let axes: Vec<String> = axes.collect();
    let axes = if axes.is_empty() {
        "none: the scenario unchanged".to_owned()
    } else {
        axes.join(" × ")
    };
    page.paragraph(Tone::Plain, "Axes      ", &axes);
    page.paragraph(Tone::Plain, "Run       ", &run(sweep));
    if sweep.damaged > 0 {
        let (was, again) = match sweep.damaged {
            1 => ("was", "that combination was"),
            _ => ("were", "those combinations were"),
        };
        let lines = counted(sweep.damaged, "line");
        let text = format!("{lines} {was} unreadable; {again} rerun");
        page.paragraph(Tone::Warning, "Journal   ", &text);
    }
    if sweep.failed > 0 {
        page.paragraph(Tone::Warning, "Failed    ", &failed(sweep));
    }
    page.paragraph(Tone::Plain, "Results   ", &clean(&sweep.results));
    rank(&mut page, comparison, sweep);
    if sweep.failed > 0 {
        fail(&mut page, comparison, sweep);
    }
    page.finish()
}

fn run(sweep: &SweepRecord) -> String {
    let ran = sweep.combinations.saturating_sub(sweep.found);
    let found = match (sweep.found, ran) {
        (0, _) => String::new(),
        (_, 0) => return "all combinations were already finished".to_owned(),
        (1, _) => "; 1 was already finished".to_owned(),
        (found, _) => format!("; {} were already finished", grouped(found)),
    };
    let seconds = sweep.took.as_secs_f64();
    let rate = if seconds > 0.0 {
        let rate = sweep.events as f64 / 1e6 / seconds;
        format!(", {}", tied(format!("{rate:.1} M/s")))
    } else {
        String::new()
    };
    format!(
        "{} in {} ({:.1} M events{rate}){found}",
        counted(ran, "combination"),
        sweep.took,
        sweep.events as f64 / 1e6
    )
}

/// Formats how many combinations failed, and the settings that all of these share.
fn failed(sweep: &SweepRecord) -> String {
    let shared = sweep.failed_at.iter();
    let shared: Vec<String> = shared.map(|shared| tied(setting(shared))).collect();
    let shared = match shared.join(" ") {
        shared if shared.is_empty() => shared,
        shared => format!(", all with {shared}"),
    };
    let share = sweep.failed as f64 / sweep.combinations.max(1) as f64;
    format!("{} ({}){shared}", failures(sweep), tied(percent(share)))
}

/// Formats how many combinations failed.
fn failures(sweep: &SweepRecord) -> String {
    let all = counted(sweep.combinations, "combination");
    format!("{} of {all}", grouped(sweep.failed))
}

/// Writes the arms with the highest and the lowest values of the chosen column.
fn rank(page: &mut Page, comparison: &Comparison, sweep: &SweepRecord) {
    let Some(metric) = comparison.metrics.first() else {
        return;
    };
    page.section(&format!("Highest and lowest {}", clean(&metric.id)));
    let ranked = comparison.arms.iter().filter(|arm| arm.excluded.is_none());
    let ranked: Vec<&Arm> = ranked.collect();
    if ranked.is_empty() {
        page.line(Tone::Plain, "  no combination has this value");
    }
    for (place, arm) in ranked.iter().enumerate() {
        let others = sweep.ranked.saturating_sub(ranked.len() as u64);
        if place == sweep.highest && others > 0 {
            let text = format!("  {} in between", counted(others, "combination"));
            page.line(Tone::Faint, &text);
        }
        let text = match (arm.value(0), metric.unit) {
            // The column's name contains the unit.
            (Some(number), Unit::Hz) => format!("{} FPS", value(Unit::None, number)),
            (number, unit) => number.map_or_else(String::new, |number| value(unit, number)),
        };
        let name = arm_name(comparison, arm);
        page.row(Tone::Plain, 2, &name, &format!("{text:>14}"));
    }
}

/// Writes the first few combinations that failed.
fn fail(page: &mut Page, comparison: &Comparison, sweep: &SweepRecord) {
    page.section(&format!("{} failed", failures(sweep)));
    let mut shown = 0;
    for arm in &comparison.arms {
        let Some(why) = &arm.excluded else { continue };
        let text = format!("{}: {}", super::settings(arm, " "), clean(why));
        page.paragraph(Tone::Warning, &format!("  {} ", clean(&arm.label)), &text);
        shown += 1;
    }
    if shown < sweep.failed {
        let text = format!(
            "{} more; see the column `error` in {}",
            grouped(sweep.failed - shown),
            clean(&sweep.results)
        );
        page.paragraph(Tone::Faint, "  ", &text);
    }
}
