//! The page that shows a comparison of two lists of numbers.

use ticktax_model::comparison::{Arm, Better, Comparison, Unit, Verdict};

use super::super::TextStyle;
use super::super::block::{Columns, RowCells, Written};
use super::super::numbers::{counted, grouped};
use super::super::page::{Page, Tone, columns, tied};
use super::super::screen::narrowed;
use super::super::value::{chance, value};
use super::arm_name;
use super::checks::checks;
use super::effects::{ROOMY, label, verdicts};
use crate::view::View;

/// Explanation of the terms on the page.
const WORDS: &str = "The difference is the ratio of the means minus one, or the difference of \
    the means if not all values are above 0. Its 95 % CI (confidence interval) is bootstrapped \
    from both lists (percentile-t), or Welch's with fewer than 8 or more than 500 values. p: \
    probability of a difference this large by chance alone (Mann-Whitney, exact for few \
    values). A difference counts if p is at most 5 % and the interval excludes 0. The values \
    are not paired, so changes to the machine between the two sets of runs are part of the \
    difference.";

/// Renders a comparison of two lists as a page that ends with a line break.
pub(super) fn page(comparison: &Comparison, style: &TextStyle) -> Written {
    let mut page = Page::new(narrowed(style));
    verdicts(&mut page, comparison, false);
    let metric = comparison.metrics.first();
    let unit = metric.map_or(Unit::None, |metric| metric.unit);
    let is_directed = metric.is_none_or(|metric| metric.better != Better::Unknown);
    let effect = comparison.effects.first();
    if !is_directed && effect.is_some_and(|effect| effect.contrast.verdict == Verdict::Differs) {
        let text = "Add --better lower or --better higher to get a verdict.";
        page.paragraph(Tone::Faint, "", text);
    }
    let headings = cells(&page, ["count", "mean", "median", "std dev", "min", "max"]);
    page.headings(Tone::Strong, "", &headings);
    for arm in &comparison.arms {
        row(&mut page, arm, &arm_name(comparison, arm), unit);
    }
    if let Some(p) = effect.and_then(|effect| effect.chance) {
        let p = tied(format!("p = {}", chance(p)));
        let text = format!("{p} (probability of a difference this large by chance)");
        page.paragraph(Tone::Plain, "", &text);
    }
    for (place, arm) in comparison.arms.iter().enumerate() {
        if arm.failed > 0 {
            let was = if arm.failed == 1 { "was" } else { "were" };
            let runs = counted(arm.failed, "failed run");
            let text = format!("{runs} in {} {was} ignored", label(comparison, place));
            page.paragraph(Tone::Warning, "Warning: ", &text);
        }
    }
    for text in checks(comparison) {
        page.paragraph(Tone::Warning, "Check: ", &text);
    }
    let between = "The difference includes any change to the machine between the two sets of runs.";
    page.paragraph(Tone::Faint, "", between);
    terms(&mut page, WORDS, style);
    page.finish()
}

/// Writes the explanation of a page's terms, if it is wanted.
pub(super) fn terms(page: &mut Page, words: &str, style: &TextStyle) {
    if style.view != View::First {
        page.section("Terms");
        page.legend(words);
    } else if style.explain {
        page.blank();
        page.paragraph(Tone::Faint, "  ", words);
    }
}

fn cells(page: &Page, [n, mean, median, deviation, min, max]: [&str; 6]) -> Columns {
    if page.width() < ROOMY {
        return Columns::right([(7, n), (9, mean), (9, median)]);
    }
    let numbers = [mean, median, deviation, min, max].map(|cell| (9, cell));
    Columns::right([(7, n)].into_iter().chain(numbers))
}

fn row(page: &mut Page, arm: &Arm, name: &str, unit: Unit) {
    let Some(figures) = arm.figure(0).and_then(|figure| figure.statistics) else {
        page.paragraph(Tone::Plain, "", name);
        return;
    };
    let n = grouped(figures.count);
    let numbers = [
        figures.mean,
        figures.median,
        figures.deviation,
        figures.min,
        figures.max,
    ];
    let [mean, median, deviation, min, max] = &numbers.map(|number| value(unit, number));
    let cells = cells(page, [&n, mean, median, deviation, min, max]);
    if columns(name) + columns(&cells.line()) < page.width() {
        page.row(Tone::Plain, 0, name, &cells);
    } else {
        // A long name gets its own line.
        page.paragraph(Tone::Plain, "", name);
        page.row(Tone::Plain, 0, "", &cells);
    }
}
