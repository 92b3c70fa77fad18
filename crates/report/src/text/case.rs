//! A case as a person reads it: lines of text, and nothing computed but widths.

use std::fmt::Write;

use ticktax_model::case::{
    CaseFit, CaseHead, CaseList, CaseSheet, CaseStatement, CaseTitle, Line, Remark,
};

use super::{Paged, TextStyle};

impl Paged for CaseList {
    fn page(&self, _: &TextStyle) -> String {
        cases(self)
    }
}

impl Paged for CaseSheet {
    fn page(&self, _: &TextStyle) -> String {
        case_sheet(self)
    }
}

impl Paged for CaseStatement {
    fn page(&self, _: &TextStyle) -> String {
        case(self)
    }
}

impl Paged for CaseFit {
    fn page(&self, _: &TextStyle) -> String {
        case_fit(self)
    }
}

/// The width of a plot in characters.
const PLOT: usize = 40;

/// The names of all cases with their titles.
pub(super) fn cases(list: &CaseList) -> String {
    let mut page = String::new();
    for CaseTitle { name, title } in &list.cases {
        line(&mut page, &format!("{name:<24}{title}"));
    }
    page
}

/// What a case's file says.
pub(super) fn case_sheet(sheet: &CaseSheet) -> String {
    let mut page = head(&sheet.head);
    section(&mut page, "Constants of the model");
    for it in &sheet.constants {
        let from = match it.fit {
            Some([low, high]) => format!("fitted between {low} and {high}"),
            None => it.from.clone(),
        };
        line(
            &mut page,
            &format!("  {:<14}{:>10} {}: {from}", it.name, it.value, it.unit),
        );
    }
    section(&mut page, "Published");
    for series in &sheet.series {
        line(&mut page, &format!("  {} ({})", series.name, series.unit));
        for row in &series.rows {
            let value = match row.range {
                Some([low, high]) => format!("{low} to {high}"),
                None => format!("{}", row.middle),
            };
            let role = if row.fit { "calibrates" } else { "" };
            line(&mut page, &format!("    {:<34}{value:>14}  {role}", row.at));
        }
    }
    remarks(&mut page, "Not derivable", &sheet.notes.underivable);
    remarks(&mut page, "Odd about the figures", &sheet.notes.artefacts);
    page
}

/// What was published beside what the model gives.
pub(super) fn case(statement: &CaseStatement) -> String {
    let mut page = head(&statement.head);
    let mut series = "";
    for row in &statement.lines {
        if row.series != series {
            series = &row.series;
            section(&mut page, &format!("{series} ({})", row.unit));
            line(
                &mut page,
                "  at                                 published   modelled            residual",
            );
        }
        line(&mut page, &comparison(row, statement));
    }
    let met = statement.lines.iter().filter(|line| line.met()).count();
    let predicted = statement.lines.iter().filter(|line| line.is_prediction());
    let (right, all) = (
        predicted.clone().filter(|line| line.met()).count(),
        predicted.count(),
    );
    section(
        &mut page,
        &format!(
            "{met} of {} rows are as near as they should be; of {all} that are predicted, {right}",
            statement.lines.len()
        ),
    );
    for row in statement.lines.iter().filter(|line| !line.met()) {
        let why = row.fails.as_deref().unwrap_or("not known to fail");
        line(
            &mut page,
            &format!("  not met: {} at {}: {why}", row.series, row.at),
        );
    }
    remarks(&mut page, "The model also says", &statement.remarks);
    remarks(&mut page, "Not derivable", &statement.notes.underivable);
    remarks(
        &mut page,
        "Odd about the figures",
        &statement.notes.artefacts,
    );
    page
}

/// What a fit came to, beside what the file has.
pub(super) fn case_fit(fit: &CaseFit) -> String {
    let mut page = head(&fit.head);
    let Some(outcome) = &fit.outcome else {
        line(&mut page, "\nNothing in this case is fitted.");
        return page;
    };
    section(&mut page, "Constants, by the rows that calibrate");
    for (it, value) in &outcome.constants {
        line(
            &mut page,
            &format!(
                "  {:<14}{value:>12.4} {} (the file has {})",
                it.name, it.unit, it.value
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
    remarks(&mut page, "How well it predicts", &outcome.hold_out);
    page
}

/// What a page about a case begins with.
pub(super) fn head(file: &CaseHead) -> String {
    let mut page = String::new();
    line(&mut page, &format!("{}: {}", file.name, file.title));
    wrapped(&mut page, &format!("Source: {}.", file.source), 2);
    wrapped(&mut page, &file.mechanism, 2);
    page
}

fn comparison(row: &Line, statement: &CaseStatement) -> String {
    let (low, high) = row.published;
    let published = if (high - low).abs() > 0.0 {
        format!("{low} to {high}")
    } else {
        format!("{low}")
    };
    let role = row.role();
    let mark = if row.met() { "" } else { "  not met" };
    format!(
        "  {:<32}{published:>12} {:>10.4}  {role:<9}{:>+9.4}  {}{mark}",
        row.at,
        row.modelled,
        row.residual,
        plot(row, statement)
    )
}

/// Published (`o`) and modelled (`x`) on the scale of their series; `8` where both are.
fn plot(row: &Line, statement: &CaseStatement) -> String {
    let series = statement
        .lines
        .iter()
        .filter(|line| line.series == row.series);
    let max = series.fold(0.0_f64, |max, line| {
        max.max(line.published.1).max(line.modelled)
    });
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a plot's width is a place in it"
    )]
    let place = |value: f64| {
        let share = if max > 0.0 {
            (value / max).clamp(0.0, 1.0)
        } else {
            0.0
        };
        (share * (PLOT - 1) as f64).round() as usize
    };
    let (o, x) = (
        place(f64::midpoint(row.published.0, row.published.1)),
        place(row.modelled),
    );
    let character = |at| match (at == o, at == x) {
        (true, true) => '8',
        (true, false) => 'o',
        (false, true) => 'x',
        (false, false) => '.',
    };
    (0..PLOT).map(character).collect()
}

/// A heading, after an empty line.
pub(super) fn section(page: &mut String, title: &str) {
    line(page, &format!("\n{title}"));
}

/// Remarks under a heading, where there are any.
pub(super) fn remarks(page: &mut String, title: &str, remarks: &[Remark]) {
    if remarks.is_empty() {
        return;
    }
    section(page, title);
    for remark in remarks {
        wrapped(page, &format!("{}: {}.", remark.what, remark.why), 2);
    }
}

/// A paragraph of at most 100 columns, the lines after the first indented further.
fn wrapped(page: &mut String, text: &str, indent: usize) {
    let mut column = 0;
    for word in text.split(' ') {
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

/// A line without what trails it.
pub(super) fn line(page: &mut String, text: &str) {
    page.push_str(text.trim_end_matches(' '));
    page.push('\n');
}
