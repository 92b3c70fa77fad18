//! The page that shows a comparison of two lists of numbers.

use std::iter;

use ticktax_model::trial::{
    ArmFigures, Better, Comparison, Numbers, NumbersComparison, Unit, Verdict,
};

use super::super::TextStyle;
use super::super::block::{Columns, RowCells, Written};
use super::super::numbers::{counted, grouped};
use super::super::page::{Page, Tone, clean, columns, tied};
use super::super::screen::narrowed;
use super::super::value::{Shown, chance, value};
use super::checks::{Names, check_text, samples};
use super::verdict_on;
use crate::view::View;

/// Explanation of the terms on the page.
const WORDS: &str = "The difference is the ratio of the means minus one, or the difference of \
    the means if not all values are above 0. Its 95 % CI (confidence interval) is bootstrapped \
    from both lists (percentile-t), or Welch's with fewer than 8 or more than 500 values. p: \
    probability of a difference this large by chance alone (Mann-Whitney, exact for few \
    values). A difference counts if p is at most 5 % and the interval excludes 0. The values \
    are not paired, so changes to the machine between the two sets of runs are part of the \
    difference.";

pub(super) fn numbers(document: &NumbersComparison, style: &TextStyle) -> Written {
    let mut page = Page::new(narrowed(style));
    let comparison = &document.comparison;
    let shown = Shown::new(document.unit, comparison.scale);
    let means = Comparison {
        metric: "mean".to_owned(),
        ..comparison.clone()
    };
    let judged = iter::once((&means, shown));
    verdict_on(&mut page, ["A", "B"], judged, false);
    if document.better == Better::Unknown && comparison.contrast.verdict == Verdict::Differs {
        let text = "Add --better lower or --better higher to get a verdict.";
        page.paragraph(Tone::Faint, "", text);
    }
    let headings = cells(&page, ["count", "mean", "median", "std dev", "min", "max"]);
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
    if let Some(p) = comparison.chance {
        page.paragraph(
            Tone::Plain,
            "",
            &format!(
                "{} (probability of a difference this large by chance)",
                tied(format!("p = {}", chance(p)))
            ),
        );
    }
    for (label, side) in [("A", &document.first), ("B", &document.second)] {
        if side.failed > 0 {
            let was = if side.failed == 1 { "was" } else { "were" };
            let runs = counted(side.failed, "failed run");
            let text = format!("{runs} in {label} {was} ignored");
            page.paragraph(Tone::Warning, "Warning: ", &text);
        }
    }
    let names = Names {
        about: "the metric".to_owned(),
        first: "A".to_owned(),
        second: "B".to_owned(),
    };
    for check in &comparison.checks {
        let text = check_text(check, &names, shown, samples(comparison));
        page.paragraph(Tone::Warning, "Check: ", &text);
    }
    let between = "The difference includes any change to the machine between the two sets of runs.";
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
    let row = format!("{label}  {name}");
    if columns(&row) + columns(&cells.line()) < page.width() {
        page.row(Tone::Plain, 0, &row, &cells);
    } else {
        // A long name gets its own line.
        page.paragraph(Tone::Plain, &format!("{label}  "), &name);
        page.row(Tone::Plain, 0, "", &cells);
    }
}
