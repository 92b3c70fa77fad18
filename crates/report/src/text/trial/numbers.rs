//! The page that shows a comparison of two lists of numbers.

use ticktax_model::trial::{ArmFigures, Better, Check, Numbers, NumbersComparison, Unit, Verdict};

use super::super::TextStyle;
use super::super::block::{Columns, Written};
use super::super::numbers::{counted, grouped};
use super::super::page::{Page, Tone, clean, tied};
use super::super::screen::narrowed;
use super::checks::is_constant;
use super::super::value::{Shown, chance, value};
use crate::view::View;

/// Explanation of the terms on the page.
const WORDS: &str = "The difference is the ratio of the means minus one, or the difference of the \
    means if not all values are above 0. Its 95 % interval is bootstrapped from both lists \
    (percentile-t), or Welch's with fewer than 8 or more than 500 values. p: probability of such a \
    difference by chance alone (Mann-Whitney, exact for few values). A difference counts if p is \
    at most 5 % and the interval excludes 0. The values are not paired, so changes of the machine \
    between the two lists are part of the difference.";

pub(super) fn numbers(document: &NumbersComparison, style: &TextStyle) -> Written {
    let mut page = Page::new(narrowed(style));
    let comparison = &document.comparison;
    let shown = Shown::new(document.unit, comparison.scale);
    verdict(&mut page, document, shown);
    let headings = cells(
        &page,
        ["count", "mean", "median", "deviation", "min", "max"],
    );
    page.headings(Tone::Strong, "", &headings);
    side(
        &mut page,
        "A",
        &document.first,
        comparison.first.as_ref(),
        document.unit,
    );
    side(
        &mut page,
        "B",
        &document.second,
        comparison.second.as_ref(),
        document.unit,
    );
    if let (Some(effect), Some(p)) = (&comparison.contrast.effect, comparison.chance) {
        let text = format!(
            "{} ({}), {}",
            tied(shown.effect(effect)),
            tied(format!("95 %: {}", shown.interval_with_unit(effect))),
            tied(format!("p = {}", chance(p)))
        );
        page.paragraph(Tone::Plain, "B minus A: ", &text);
    }
    for (label, side) in [("A", &document.first), ("B", &document.second)] {
        if side.failed > 0 {
            let text = format!(
                "{label}: {} failed and do not count",
                counted(side.failed, "run")
            );
            page.paragraph(Tone::Warning, "Check: ", &text);
        }
    }
    for check in &comparison.checks {
        if let Some(text) = check_words(check, document) {
            page.paragraph(Tone::Warning, "Check: ", &text);
        }
    }
    let between = "Changes of the machine between the two lists are part of the difference.";
    page.paragraph(Tone::Faint, "", between);
    if style.view != View::First {
        page.section("Terms");
        page.legend(WORDS);
    } else if style.explain {
        page.blank();
        page.paragraph(Tone::Faint, "  ", WORDS);
    }
    page.finish()
}

/// Writes the verdict in one sentence.
fn verdict(page: &mut Page, document: &NumbersComparison, shown: Shown) {
    let comparison = &document.comparison;
    let by = comparison.contrast.effect.as_ref();
    let by = by.map_or_else(String::new, |effect| tied(shown.effect(effect)));
    let lower = comparison
        .contrast
        .effect
        .is_some_and(|effect| effect.value < 0.0);
    let way = if lower { "lower" } else { "higher" };
    let (tone, text) = match comparison.contrast.verdict {
        Verdict::Better => (Tone::Good, format!("B is better: {way}, {by}.")),
        Verdict::Worse => (Tone::Alarm, format!("B is worse: {way}, {by}.")),
        Verdict::Differs => (Tone::Strong, format!("B is {way}: {by}.")),
        Verdict::NoDifferenceBeyond { bound } => {
            let bound = tied(shown.size(bound));
            (Tone::Strong, format!("No difference larger than {bound}."))
        }
        Verdict::CannotTell { more_blocks } => {
            let more = match (more_blocks, comparison.contrast.effect) {
                _ if is_constant(comparison) => "every value is the same".to_owned(),
                (_, None) => "one list has a single value".to_owned(),
                (Some(more), _) => format!(
                    "about {} in each list would",
                    tied(format!("{} more values", grouped(more)))
                ),
                (None, _) => "even 10 000 values in each list would not".to_owned(),
            };
            (Tone::Warning, format!("Cannot tell A and B apart: {more}."))
        }
    };
    page.paragraph(tone, "", &text);
    if document.better == Better::Unknown && comparison.contrast.verdict == Verdict::Differs {
        let text = "Set --better lower or --better higher for a verdict.";
        page.paragraph(Tone::Faint, "", text);
    }
}

fn cells(page: &Page, [n, mean, median, deviation, min, max]: [&str; 6]) -> Columns {
    if page.width() < super::ROOMY {
        return Columns::right([(7, n), (9, mean), (9, median)]);
    }
    Columns::right([
        (7, n),
        (9, mean),
        (9, median),
        (9, deviation),
        (9, min),
        (9, max),
    ])
}

fn side(page: &mut Page, label: &str, list: &Numbers, figures: Option<&ArmFigures>, unit: Unit) {
    let file = clean(&list.file);
    let name = list.name.as_deref().map(clean);
    let name = name.map_or_else(|| file.clone(), |name| format!("{file}: {name}"));
    let Some(figures) = figures else {
        page.paragraph(Tone::Plain, &format!("{label}  "), &name);
        return;
    };
    let text = |number: f64| value(unit, number);
    let n = grouped(figures.count);
    let [mean, median, deviation] = [figures.mean, figures.median, figures.deviation].map(text);
    let [min, max] = [figures.min, figures.max].map(text);
    let cells = cells(page, [&n, &mean, &median, &deviation, &min, &max]);
    page.row(Tone::Plain, 0, &format!("{label}  {name}"), &cells);
}

fn check_words(check: &Check, document: &NumbersComparison) -> Option<String> {
    let which = |first: bool, second: bool| match (first, second) {
        (true, true) => "both lists are",
        (true, false) => "A is",
        (false, _) => "B is",
    };
    Some(match *check {
        Check::Sorted {
            first,
            second,
            chance: p,
        } => format!(
            "{} in sorted order ({} by chance): the values were sorted before, or the machine \
             drifted",
            which(first, second),
            tied(format!("p = {}", chance(p)))
        ),
        Check::Constant { value: constant } => {
            format!("every value is {}", value(document.unit, constant))
        }
        Check::Identical => "both lists have identical values".to_owned(),
        Check::TooFew { have, need } => format!(
            "{} in one list; a verdict needs at least {need}",
            counted(have, "value")
        ),
        // The remaining checks concern the runs of a trial, which a list of numbers does not have.
        Check::Missing { .. }
        | Check::Drift { .. }
        | Check::Order { .. }
        | Check::Failures { .. } => return None,
    })
}
