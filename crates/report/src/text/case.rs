//! The pages about a case, that is, a published investigation. They only format the document, and
//! compute nothing except column widths.

use std::fmt::Write;

use ticktax_model::case::{
    CaseFit, CaseHead, CaseList, CaseNotes, CaseSheet, CaseStatement, CaseSummary, CaseTitle,
    Constant, Ends, Line, MeasuredRow, Remark, RowKind, Sensitivity,
};

use super::block::Written;
use super::page::clean;
use super::{Paged, TextStyle};

impl Paged for CaseList {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(cases(self))
    }
}

impl Paged for CaseSheet {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(case_sheet(self))
    }
}

impl Paged for CaseStatement {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(case(self))
    }
}

impl Paged for CaseFit {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(case_fit(self))
    }
}

/// Lists all cases with their titles.
pub(super) fn cases(list: &CaseList) -> String {
    let mut page = String::new();
    for CaseTitle { name, title } in &list.cases {
        line(&mut page, &format!("{name:<24}{title}"));
    }
    page
}

/// Shows the contents of a case's file.
pub(super) fn case_sheet(sheet: &CaseSheet) -> String {
    let mut page = head(&sheet.case);
    constants(&mut page, &sheet.constants);
    section(&mut page, "Published and derived values");
    for series in &sheet.series {
        line(&mut page, &format!("  {} ({})", series.name, series.unit));
        for row in &series.rows {
            let words = words(row.fact.as_deref(), row.place.as_deref(), row.published);
            let role = if row.fit { "calibrates" } else { "" };
            let text = format!("{:<36}{words:<42}{role}", row.label);
            wrapped(&mut page, text.trim_end(), 4);
            if let Some(derived) = row.derived {
                let formula = row.formula.join(" to ");
                wrapped(
                    &mut page,
                    &format!("derived: {} = {formula}", ends(derived)),
                    8,
                );
            }
        }
    }
    notes(&mut page, &sheet.notes);
    page
}

fn constants(page: &mut String, constants: &[Constant]) {
    if constants.is_empty() {
        return;
    }
    section(page, "Constants of the model");
    for constant in constants {
        let from = match (&constant.fact, constant.fit_range) {
            (Some(fact), _) => {
                let words = words(Some(fact), constant.place.as_deref(), None);
                format!("published: {words}")
            }
            (None, Some([low, high])) => format!("fitted, from {low} to {high}"),
            (None, None) => constant.reason.clone(),
        };
        let text = format!(
            "{:<14}{:>9} {}: {from}",
            constant.name,
            number(constant.value),
            constant.unit
        );
        wrapped(page, &text, 2);
    }
}

/// Shows published and derived figures next to the model's results.
pub(super) fn case(statement: &CaseStatement) -> String {
    let mut page = title(&statement.case);
    if let Some(lines) = &statement.summary {
        summary(&mut page, lines);
    }
    background(&mut page, &statement.case);
    line(&mut page, "");
    wrapped(&mut page, LEGEND, 0);
    let (incomparable, comparable): (Vec<&Line>, Vec<&Line>) = statement
        .rows
        .iter()
        .partition(|row| row.kind == RowKind::NotComparable);
    for rows in comparable.chunk_by(|a, b| a.series == b.series) {
        section(&mut page, &format!("{} ({})", rows[0].series, rows[0].unit));
        line(&mut page, HEADINGS);
        for row in rows {
            comparison(&mut page, row);
        }
    }
    remarks(
        &mut page,
        "Measured on this machine",
        &statement.this_machine,
    );
    verdict(&mut page, statement);
    remarks(&mut page, HOLD_OUT, &statement.hold_out);
    for parameter in &statement.sensitivity {
        sensitivity(&mut page, parameter);
    }
    remarks(&mut page, "Other results of the model", &statement.remarks);
    notes(&mut page, &statement.notes);
    constants(&mut page, &statement.constants);
    without_comparison(&mut page, &incomparable, &statement.measured);
    page
}

const LEGEND: &str = "Published facts are in our words, with their place in the source in \
                      brackets. predicted: no constant of the model comes from the row. chosen: a \
                      constant was chosen by looking at the row. fit: the model was fitted to the \
                      row. identity: the result follows from the source's own arithmetic, or from \
                      other rows. A match is evidence only if the row is predicted.";
const HOLD_OUT: &str = "Calibrated with other rows";

/// Writes the five opening lines.
fn summary(page: &mut String, summary: &CaseSummary) {
    for (name, text) in [
        ("Claim", &summary.claim),
        ("Verdict", &summary.verdict),
        ("Model", &summary.model),
        ("Kernel", &summary.kernel),
        ("Today", &summary.today),
    ] {
        wrapped(page, &format!("{name:<8} {text}"), 0);
    }
}

/// Writes the rows that cannot be compared: either the source or the model has no number for them.
fn without_comparison(page: &mut String, rows: &[&Line], measurements: &[MeasuredRow]) {
    if rows.is_empty() && measurements.is_empty() {
        return;
    }
    section(
        page,
        "Rows without a comparison: the source or the model has no number",
    );
    line(page, HEADINGS.trim_end_matches("error").trim_end());
    for rows in rows.chunk_by(|a, b| a.series == b.series) {
        let series = &rows[0].series;
        wrapped(page, &format!("{series} ({})", rows[0].unit), 2);
        for row in rows {
            comparison(page, row);
        }
        measured(page, measurements, series);
    }
    for row in measurements {
        if rows.iter().all(|other| other.series != row.series) {
            measured(page, std::slice::from_ref(row), &row.series);
        }
    }
}

/// Writes the rows of `series` that consist only of measurements on this machine.
fn measured(page: &mut String, rows: &[MeasuredRow], series: &str) {
    for row in rows.iter().filter(|row| row.series == series) {
        let value = number(row.value);
        line(
            page,
            &format!("  {:<40}{value:>10}  measured here", row.label),
        );
    }
}

const HEADINGS: &str = "  condition                       published                 derived      \
                        model                    error";

fn comparison(page: &mut String, row: &Line) {
    let derived = row.derived.map_or_else(String::new, ends);
    let model = row.modelled.map_or_else(String::new, number);
    let off = row.residual.map_or_else(String::new, |residual| {
        let off = number(residual);
        if residual > 0.0 {
            format!("+{off}")
        } else {
            off
        }
    });
    let mark = if row.met() == Some(false) {
        "  differs"
    } else {
        ""
    };
    let published = words(row.fact.as_deref(), row.place.as_deref(), row.published);
    let mut published = textwrap(&published, 25).into_iter();
    let mut at = textwrap(&row.label, 31).into_iter();
    let next = |lines: &mut std::vec::IntoIter<String>| lines.next().unwrap_or_default();
    line(
        page,
        &format!(
            "  {:<32}{:<26}{derived:<12}{model:>7}  {:<14}{off:>8}{mark}",
            next(&mut at),
            next(&mut published),
            match row.kind {
                RowKind::NotComparable => "",
                kind => kind.name(),
            }
        ),
    );
    while at.len() + published.len() > 0 {
        let more = format!("    {:<30}{}", next(&mut at), next(&mut published));
        line(page, &more);
    }
}

/// Returns the title of the section that contains the verdict.
pub(crate) fn verdict_title(statement: &CaseStatement) -> String {
    let count = |kind: RowKind| {
        let rows = statement.rows.iter().filter(move |line| line.kind == kind);
        let met = rows.clone().filter(|line| line.met() == Some(true)).count();
        (met, rows.count())
    };
    let (right, all) = count(RowKind::Predicted);
    let others = [
        (RowKind::Chosen, "chosen rows"),
        (RowKind::Fit, "fitted rows"),
        (RowKind::Identity, "identities"),
    ];
    let others = others.map(|(kind, name)| {
        let (met, count) = count(kind);
        (count > 0).then(|| format!(", {met} of {count} {name}"))
    });
    let others: String = others.into_iter().flatten().collect();
    let (_, not_comparable) = count(RowKind::NotComparable);
    format!(
        "{right} of {all} predicted rows match{others}; {not_comparable} rows are not comparable"
    )
}

/// Writes how many rows the model matches, and why it misses the others. Also lists the rows that
/// it matches only with certain parameter values.
fn verdict(page: &mut String, statement: &CaseStatement) {
    section(page, &verdict_title(statement));
    for row in &statement.rows {
        if row.met() == Some(false) {
            let why = row.known_failure.as_deref().unwrap_or("unknown reason");
            let text = format!("{} at {} does not match: {why}.", row.series, row.label);
            wrapped(page, &text, 2);
        }
        if !row.only_with.is_empty() {
            let with = row.only_with.join(", ");
            let text = format!(
                "matches only with {with}, of all values tried: {} at {}.",
                row.series, row.label
            );
            wrapped(page, &text, 2);
        }
    }
}

/// Writes the results for other values of a parameter. There is one column per value.
fn sensitivity(page: &mut String, sensitivity: &Sensitivity) {
    let refitted = if sensitivity.refitted.is_empty() {
        String::new()
    } else {
        format!(
            "; {} refitted for each value",
            sensitivity.refitted.join(", ")
        )
    };
    section(
        page,
        &format!(
            "With other values of {} ({}){refitted}; !: no match",
            sensitivity.parameter, sensitivity.unit
        ),
    );
    let columns = |cell: &dyn Fn(usize) -> String| {
        let cells = (0..sensitivity.points.len()).map(|point| format!("{:>9}", cell(point)));
        cells.collect::<String>()
    };
    let values = columns(&|point| {
        let point = &sensitivity.points[point];
        let mark = if point.used { "*" } else { "" };
        format!("{}{mark}", number(point.value))
    });
    line(page, &format!("  {:<34}{values}", "(*: value in the file)"));
    let met = columns(&|point| {
        format!(
            "{}/{}",
            sensitivity.points[point].matched, sensitivity.points[point].comparable
        )
    });
    line(page, &format!("  {:<34}{met}", "matching rows"));
    for (place, (series, at)) in sensitivity.rows.iter().enumerate() {
        let outcomes = columns(&|point| {
            let (value, met) = sensitivity.points[point].outcomes[place];
            let mark = if met { "" } else { "!" };
            format!("{mark}{}", number(value))
        });
        let name: String = format!("{series} at {at}").chars().take(34).collect();
        line(page, &format!("  {name:<34}{outcomes}"));
    }
}

/// Returns the published fact, with its place in the source, or the published range if the case
/// gives only that.
pub(crate) fn words(fact: Option<&str>, place: Option<&str>, published: Option<Ends>) -> String {
    match (fact, place, published) {
        (Some(fact), Some(place), _) => format!("{fact} [{place}]"),
        (Some(fact), None, _) => fact.to_owned(),
        (None, _, Some(published)) => ends(published),
        (None, _, None) => String::new(),
    }
}

/// Formats a range, or a single number if both ends are equal.
pub(crate) fn ends([low, high]: Ends) -> String {
    match (low, high) {
        (Some(low), Some(high)) if (high - low).abs() > 0.0 => {
            format!("{} to {}", number(low), number(high))
        }
        (Some(low), Some(_)) => number(low),
        (Some(low), None) => format!("{} or more", number(low)),
        (None, Some(high)) => format!("{} or less", number(high)),
        (None, None) => String::new(),
    }
}

/// Formats a number with four significant digits, or with all the digits before its decimal point
/// if it has more.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        ..1e-12 => return "0".to_owned(),
        ..0.001 => return format!("{value:.1e}"),
        ..1.0 => format!("{value:.4}"),
        ..10.0 => format!("{value:.3}"),
        ..100.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn notes(page: &mut String, notes: &CaseNotes) {
    remarks(page, "Not reproduced", &notes.not_reproduced);
    remarks(page, "Inconsistencies in the source", &notes.oddities);
}

/// Breaks text into lines of at most `width` characters. Breaks only between words.
fn textwrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Shows the fitted constants next to those in the case's file.
pub(super) fn case_fit(fit: &CaseFit) -> String {
    let mut page = head(&fit.case);
    let Some(outcome) = &fit.outcome else {
        line(&mut page, "\nThis case has no fitted constants.");
        return page;
    };
    section(&mut page, "Constants fitted to the calibration rows");
    for (constant, value) in &outcome.constants {
        line(
            &mut page,
            &format!(
                "  {:<14}{value:>12.4} {} (the file has {})",
                constant.name, constant.unit, constant.value
            ),
        );
    }
    line(
        &mut page,
        &format!(
            "  misfit {:.4}, {} runs of the model",
            outcome.misfit, outcome.runs
        ),
    );
    remarks(&mut page, HOLD_OUT, &outcome.hold_out);
    page
}

/// Returns the lines that every page about a case starts with.
pub(super) fn head(file: &CaseHead) -> String {
    let mut page = title(file);
    background(&mut page, file);
    page
}

fn title(file: &CaseHead) -> String {
    let mut page = String::new();
    line(&mut page, &format!("{}: {}", file.name, file.title));
    page
}

/// Writes where the case comes from, and what the model does.
fn background(page: &mut String, file: &CaseHead) {
    wrapped(page, &format!("Source: {}.", file.source), 2);
    wrapped(page, &file.mechanism, 2);
}

/// Writes an empty line and then a heading.
pub(super) fn section(page: &mut String, title: &str) {
    line(page, &format!("\n{title}"));
}

/// Writes remarks under a heading. Writes nothing if `remarks` is empty.
pub(super) fn remarks(page: &mut String, title: &str, remarks: &[Remark]) {
    if remarks.is_empty() {
        return;
    }
    section(page, title);
    for remark in remarks {
        wrapped(page, &format!("{}: {}.", remark.topic, remark.reason), 2);
    }
}

/// Writes a paragraph at most 100 columns wide. Lines after the first are indented by two more
/// columns.
pub(super) fn wrapped(page: &mut String, text: &str, indent: usize) {
    let mut column = 0;
    for word in text.split(' ').map(clean) {
        let width = word.chars().count();
        if column == 0 {
            let _ = write!(page, "{:indent$}{word}", "");
            column = indent + width;
        } else if column + 1 + width > 100 {
            let deeper = indent + 2;
            let _ = write!(page, "\n{:deeper$}{word}", "");
            column = deeper + width;
        } else {
            let _ = write!(page, " {word}");
            column += 1 + width;
        }
    }
    page.push('\n');
}

/// Writes a line without trailing spaces. A leading line break in `text` becomes an empty line.
pub(super) fn line(page: &mut String, text: &str) {
    let text = text.strip_prefix('\n').map_or(text, |text| {
        page.push('\n');
        text
    });
    page.push_str(clean(text).trim_end_matches(' '));
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::{line, wrapped};

    /// Text such as a remark comes from a file, which may be from another machine.
    #[test]
    fn text_from_a_file_cannot_add_lines_or_escape_codes() {
        let mut page = String::new();
        line(&mut page, "\nhost\u{1b}[31mRED\nFAKE");
        wrapped(&mut page, "on host\u{9b}\nFAKE LINE", 2);
        assert_eq!(
            page,
            "\nhost\u{fffd}[31mRED\u{fffd}FAKE\n  on host\u{fffd}\u{fffd}FAKE LINE\n"
        );
    }
}
