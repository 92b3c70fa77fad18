//! The page about a sweep. It shows the outcome, and which arms (settings) have the highest and
//! lowest values.

use ticktax_model::sweep::{GridStatement, RankedArm, Ranking};
use ticktax_model::trial::Unit;

use super::block::Written;
use super::numbers::{counted, grouped, percent};
use super::page::{Page, Tone, clean, tied};
use super::value::{cell, value};
use super::{Paged, TextStyle};

impl Paged for GridStatement {
    fn page(&self, style: &TextStyle) -> Written {
        grid(self, style)
    }
}

/// Renders the outcome of a sweep as a page that ends with a line break.
pub(super) fn grid(statement: &GridStatement, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    let title = format!(
        "ticktax: sweep of {} of {}",
        counted(statement.arms, "combination"),
        clean(&statement.scenario)
    );
    page.line(Tone::Strong, &title);
    let axes = statement.axes.iter();
    let axes =
        axes.map(|(name, count)| tied(format!("{} of {}", counted(*count, "value"), clean(name))));
    let axes: Vec<String> = axes.collect();
    let axes = if axes.is_empty() {
        "none: the scenario unchanged".to_owned()
    } else {
        axes.join(" × ")
    };
    page.paragraph(Tone::Plain, "Axes      ", &axes);
    page.paragraph(Tone::Plain, "Run       ", &run(statement));
    if statement.damaged > 0 {
        let (was, again) = match statement.damaged {
            1 => ("was", "that combination was"),
            _ => ("were", "those combinations were"),
        };
        let lines = counted(statement.damaged, "line");
        let text = format!("{lines} {was} unreadable; {again} rerun");
        page.paragraph(Tone::Warning, "Journal   ", &text);
    }
    if statement.failed > 0 {
        page.paragraph(Tone::Warning, "Failed    ", &failed(statement));
    }
    page.paragraph(Tone::Plain, "Results   ", &clean(&statement.results));
    if let Some(ranking) = &statement.ranking {
        rank(&mut page, statement, ranking);
    }
    if statement.failed > 0 {
        fail(&mut page, statement);
    }
    page.finish()
}

fn run(statement: &GridStatement) -> String {
    let ran = statement.arms.saturating_sub(statement.found);
    let found = match (statement.found, ran) {
        (0, _) => String::new(),
        (_, 0) => return "all combinations were already finished".to_owned(),
        (1, _) => "; 1 was already finished".to_owned(),
        (found, _) => format!("; {} were already finished", grouped(found)),
    };
    let seconds = statement.took.as_secs_f64();
    let rate = if seconds > 0.0 {
        let rate = statement.events as f64 / 1e6 / seconds;
        format!(", {}", tied(format!("{rate:.1} M/s")))
    } else {
        String::new()
    };
    format!(
        "{} in {} ({:.1} M events{rate}){found}",
        counted(ran, "combination"),
        statement.took,
        statement.events as f64 / 1e6
    )
}

/// Formats the number of combinations that failed, and the settings that all of them share.
fn failed(statement: &GridStatement) -> String {
    let shared = statement.failed_at.iter();
    let shared: Vec<String> = shared
        .map(|(name, value)| tied(format!("{}={}", clean(name), clean(value))))
        .collect();
    let shared = match shared.join(" ") {
        shared if shared.is_empty() => shared,
        shared => format!(", all with {shared}"),
    };
    format!(
        "{} of {} ({}){shared}",
        grouped(statement.failed),
        counted(statement.arms, "combination"),
        tied(percent(
            statement.failed as f64 / statement.arms.max(1) as f64
        )),
    )
}

fn rank(page: &mut Page, statement: &GridStatement, ranking: &Ranking) {
    let title = format!("Highest and lowest {}", clean(&ranking.column));
    page.section(&title);
    let row = |page: &mut Page, arm: &RankedArm| {
        let name = ranked_name(statement, arm);
        let text = match ranking.unit() {
            Unit::Hz if ranking.column.ends_with("fps") => {
                format!("{} FPS", cell(Unit::Hz, arm.value))
            }
            unit => value(unit, arm.value),
        };
        page.row(Tone::Plain, 2, &name, &format!("{text:>14}"));
    };
    if ranking.highest.is_empty() {
        page.line(Tone::Plain, "  no combination has this value");
    }
    for arm in &ranking.highest {
        row(page, arm);
    }
    let shown = (ranking.highest.len() + ranking.lowest.len()) as u64;
    if shown < ranking.arms {
        let text = format!(
            "  {} in between",
            counted(ranking.arms - shown, "combination")
        );
        page.line(Tone::Faint, &text);
    }
    for arm in ranking.lowest.iter().rev() {
        row(page, arm);
    }
}

/// Returns the number and the settings of an arm.
pub(crate) fn ranked_name(statement: &GridStatement, arm: &RankedArm) -> String {
    format!("#{} {}", arm.arm, settings(statement, &arm.values))
}

/// Formats the values of an arm with the names of their axes.
fn settings(statement: &GridStatement, values: &[String]) -> String {
    let settings = statement.axes.iter().zip(values);
    let settings: Vec<String> = settings
        .map(|((name, _), value)| format!("{}={}", clean(name), clean(value)))
        .collect();
    settings.join(" ")
}

fn fail(page: &mut Page, statement: &GridStatement) {
    page.section(&format!(
        "{} of {} failed",
        grouped(statement.failed),
        counted(statement.arms, "combination")
    ));
    for failure in &statement.failures {
        let settings = settings(statement, &failure.values);
        let text = format!("{settings}: {}", clean(&failure.why));
        page.paragraph(Tone::Warning, &format!("  #{} ", failure.arm), &text);
    }
    let shown = statement.failures.len() as u64;
    if shown < statement.failed {
        let text = format!(
            "{} more; see the column `error` in {}",
            grouped(statement.failed - shown),
            clean(&statement.results)
        );
        page.paragraph(Tone::Faint, "  ", &text);
    }
}
