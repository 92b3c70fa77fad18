//! Tables with a row for each arm and a column for each metric.

use ticktax_model::comparison::{Arm, Comparison, Measure, Origin, Unit};

use super::super::block::Columns;
use super::super::page::{Page, Tone};
use super::super::value::cell;

/// Heading and measure of a column.
pub(super) type Column<'a> = (&'a str, Measure);

/// Returns the width of a column in characters.
fn width((heading, measure): &Column<'_>) -> usize {
    let values = match measure.unit() {
        Unit::Count => 5,
        Unit::Bps => 11,
        Unit::Hz | Unit::Share => 7,
        Unit::Ns | Unit::S | Unit::PerMinute | Unit::None => 8,
    };
    values.max(heading.len())
}

/// Writes the headings of a table of arms.
pub(super) fn headings(page: &mut Page, title: &str, columns: &[Column<'_>]) {
    let cells = columns.iter().map(|column| (width(column), column.0));
    page.headings(Tone::Faint, title, &Columns::right(cells));
}

/// Writes an arm's row, followed by rows with the ends of the figures' ranges.
pub(super) fn row(
    page: &mut Page,
    comparison: &Comparison,
    columns: &[Column<'_>],
    arm: &NamedArm<'_>,
) {
    let NamedArm { arm, name, tone } = arm;
    let cells = |value: &dyn Fn(Measure) -> Option<f64>| {
        let cells = columns.iter().map(|column| {
            let unit = column.1.unit();
            let text = value(column.1).map_or_else(String::new, |value| cell(unit, value));
            (width(column), text)
        });
        Columns::right(cells)
    };
    let values = cells(&|measure| comparison.value(arm, measure));
    // Values must be aligned, so a long name goes on a separate line.
    let wide: usize = columns.iter().map(|column| 1 + width(column)).sum();
    let room = page.width().saturating_sub(wide + 1);
    let has_values = !values.is_blank();
    if has_values && name.chars().count() > room {
        page.line(*tone, name);
        page.row(*tone, 2, "", &values);
    } else if has_values {
        page.row(*tone, 0, name, &values);
    }
    let from = if has_values {
        "from".to_owned()
    } else {
        format!("{} from", arm.origin.name())
    };
    let end = |measure| comparison.figure(arm, measure)?.interval;
    let ends = [
        cells(&|measure| Some(end(measure)?.0)),
        cells(&|measure| Some(end(measure)?.1)),
    ];
    for (word, ends) in [&*from, "to"].into_iter().zip(ends) {
        if !ends.is_blank() {
            page.row(Tone::Faint, 4, word, &ends);
        }
    }
}

/// An arm, and the look of its row.
pub(super) struct NamedArm<'a> {
    pub(super) arm: &'a Arm,
    pub(super) name: String,
    pub(super) tone: Tone,
}

impl<'a> NamedArm<'a> {
    /// Marks measured arms among predicted ones.
    pub(super) fn new(arm: &'a Arm, name: String) -> Self {
        let tone = match arm.origin {
            Origin::Measured | Origin::Simulated => Tone::Strong,
            Origin::Predicted => Tone::Plain,
        };
        Self { arm, name, tone }
    }
}
