//! Plots of cases, that is, of published investigations. They show published and derived values
//! next to the model's results and to measurements on kernels.

use std::fmt::Write;

use ticktax_model::case::{CaseStatement, Ends, Line, RowKind};
use ticktax_model::comparison::Unit;
use ticktax_model::kernels::{KernelRow, KernelTable, KernelsStatement};

use super::Plot;
use super::axis::Axis;
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::{Topic, case_ends, case_number, kernel_table_title, published_words};

/// Explains the marks.
const MARKS: &str = "The symbols below the title show which number is which. A line is a range. \
    If the \
    range is open, the line continues to the edge.";

/// Draws the rows of a case, grouped by series and kind of row.
pub(super) fn case_plot(statement: &CaseStatement) -> Option<Plot> {
    let mut html = format!(
        "<p class=\"legend\">{MARKS} predicted: the model's constants do not come from the row. \
         chosen: a constant was chosen by looking at the row. fit: the model was fitted to the \
         row. identity: the value follows from the source's own arithmetic, or from other rows. In \
         the last three, agreement proves nothing. not comparable: the model or the source has no \
         number for the row. error: how far the model is above the published value or range, or \
         below it.</p>\n"
    );
    let before = html.len();
    let mut tables: Vec<&[Line]> = statement
        .rows
        .chunk_by(|a, b| a.series == b.series && a.unit == b.unit)
        .collect();
    // Tables without a comparison come last.
    tables.sort_by_key(|rows| rows.iter().all(|row| row.kind == RowKind::NotComparable));
    for rows in tables {
        series(&mut html, rows);
    }
    (html.len() > before).then_some(Plot {
        id: "published",
        title: "Published and modelled values",
        topic: Topic::Other,
        html,
    })
}

fn series(out: &mut String, lines: &[Line]) {
    let Some(first) = lines.first() else {
        return;
    };
    let title = titled(&first.series, &first.unit);
    let ends = |ends: Option<Ends>| ends.into_iter().flatten().flatten();
    let values = lines.iter().flat_map(|line| {
        let given = ends(line.published).chain(ends(line.derived));
        given.chain(line.modelled)
    });
    let unit = if first.unit.is_empty() {
        "value"
    } else {
        &first.unit
    };
    let axis = Axis::fitting(unit, values.clone(), Unit::None);
    let edges = edges(values);
    if edges.is_none() {
        return;
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "<h3>{}</h3>", text(&title));
    let columns = ["published", "derived", "model", "error"];
    let kinds = ["published", "derived from published", "model"];
    let mut table = Strips::new(&title, &columns, &kinds, vec![axis]);
    for kind in RowKind::ALL {
        let of_kind: Vec<&Line> = lines.iter().filter(|line| line.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        table.group(kind.name());
        for line in of_kind {
            let off = line.residual.map_or_else(String::new, |off| {
                let missed = if line.met() == Some(false) {
                    ", differs"
                } else {
                    ""
                };
                let sign = if off > 0.0 { "+" } else { "" };
                format!("{sign}{}{missed}", case_number(off))
            });
            let cells = [
                published_words(line.fact.as_deref(), line.place.as_deref(), line.published),
                line.derived.map_or_else(String::new, case_ends),
                line.modelled.map_or_else(String::new, case_number),
                off,
            ]
            .map(Quantity::from);
            let marks = [
                line.published.and_then(|ends| mark(0, ends, edges)),
                line.derived.and_then(|ends| mark(1, ends, edges)),
                line.modelled.map(|value| Mark::at(2, value)),
            ];
            let marks: Vec<Mark> = marks.into_iter().flatten().collect();
            table.row(&line.label, &cells, &[&marks]);
        }
    }
    out.push_str(&table.finish());
}

fn titled(what: &str, unit: &str) -> String {
    if unit.is_empty() {
        what.to_owned()
    } else {
        format!("{what} ({unit})")
    }
}

/// Returns the smallest and the largest finite value, or `None` if no value is finite.
fn edges(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = values
        .filter(|value| value.is_finite())
        .map(|value| (value, value));
    ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Returns the mark for a value or range. A range that is open at one end extends beyond all other
/// values.
fn mark(kind: usize, ends: Ends, edges: Option<(f64, f64)>) -> Option<Mark> {
    let (low, high) = edges?;
    match ends {
        [Some(a), Some(b)] if (a - b).abs() > 0.0 => Some(Mark::over(kind, (a, b))),
        [Some(a), Some(_)] => Some(Mark::at(kind, a)),
        [Some(a), None] => Some(Mark::over(kind, (a, high + (high - low).abs()))),
        [None, Some(b)] => Some(Mark::over(kind, (low - (high - low).abs(), b))),
        [None, None] => None,
    }
}

/// Draws measurements on kernels next to the published, modelled and expected values.
pub(super) fn kernels_plot(statement: &KernelsStatement) -> Option<Plot> {
    let mut html = format!(
        "<p class=\"legend\">{MARKS} calibration: the expectation was calibrated with the row, so \
         agreement proves nothing.</p>\n"
    );
    for table in &statement.tables {
        kernel_table(&mut html, table);
    }
    let any = statement.tables.iter().any(|table| !table.rows.is_empty());
    any.then_some(Plot {
        id: "kernels",
        title: "Published, modelled, expected and measured values",
        topic: Topic::Other,
        html,
    })
}

fn kernel_table(out: &mut String, table: &KernelTable) {
    let title = kernel_table_title(table);
    let rows = &table.rows;
    if rows.is_empty() {
        return;
    }
    let given = |row: &KernelRow| {
        let published = row.published.into_iter().flat_map(|(a, b)| [a, b]);
        published.chain(row.modelled)
    };
    let on_kernel = |row: &KernelRow| {
        let expected = row.expected.into_iter().flat_map(|(a, b)| [a, b]);
        expected.chain([row.kernel])
    };
    let same_unit = table.unit == table.kernel_unit;
    let real = rows.iter().flat_map(on_kernel);
    let axes = if same_unit {
        let all = rows.iter().flat_map(given).chain(real);
        vec![Axis::fitting(
            &titled("value", &table.unit),
            all,
            Unit::None,
        )]
    } else {
        let first = Axis::fitting(
            &titled("publication", &table.unit),
            rows.iter().flat_map(given),
            Unit::None,
        );
        let second = Axis::fitting(&titled("this kernel", &table.kernel_unit), real, Unit::None);
        vec![first, second]
    };
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "<h3>{}</h3>", text(&title));
    let columns = [
        titled("published", &table.unit),
        titled("modelled", &table.unit),
        titled("expected", &table.kernel_unit),
        titled("kernel", &table.kernel_unit),
        "verdict".to_owned(),
    ];
    let columns = columns.each_ref().map(String::as_str);
    let expected = format!("expected: {}", table.expectation);
    let kinds = ["published", "modelled", &*expected, "kernel"];
    let mut strips = Strips::new(&title, &columns, &kinds, axes);
    let range = |range: Option<(f64, f64)>| {
        range.map_or_else(String::new, |(a, b)| case_ends([Some(a), Some(b)]))
    };
    for row in rows {
        let near = match table.met(row) {
            Some(false) => "off",
            Some(true) if row.fit => "calibration",
            Some(true) => "as expected",
            None => "not judged",
        };
        let cells = [
            range(row.published),
            row.modelled.map_or_else(String::new, case_number),
            range(row.expected),
            case_number(row.kernel),
            near.to_owned(),
        ]
        .map(Quantity::from);
        let (given, on_kernel) = marks(row);
        let name = format!("HZ={}", row.hz);
        if same_unit {
            strips.row(&name, &cells, &[&[given, on_kernel].concat()]);
        } else {
            strips.row(&name, &cells, &[&given, &on_kernel]);
        }
    }
    out.push_str(&strips.finish());
}

/// Returns two groups of marks for a row: first the published and modelled values, then the
/// expected values and the kernel's measurement.
fn marks(row: &KernelRow) -> (Vec<Mark>, Vec<Mark>) {
    let over = |kind, ends: Option<(f64, f64)>| {
        ends.and_then(|(a, b)| mark(kind, [Some(a), Some(b)], Some((a, b))))
    };
    let modelled = row.modelled.map(|value| Mark::at(1, value));
    let given = over(0, row.published).into_iter().chain(modelled);
    let on_kernel = over(2, row.expected).into_iter();
    (
        given.collect(),
        on_kernel.chain([Mark::at(3, row.kernel)]).collect(),
    )
}
