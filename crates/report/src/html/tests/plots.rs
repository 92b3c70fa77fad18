//! What is drawn says what the document says.

use ticktax_model::document::Document;
use ticktax_model::statement::Statement;

use super::reader::read;
use crate::html::escape::text;
use crate::html::plots::of;
use crate::text::account_name;
use crate::text::tests::samples::{empty, kernel_level};
use crate::text::tests::{accounting, pace, trials};

/// The plot of this name, as HTML.
fn plot(document: &Document, id: &str) -> String {
    let mut plots = of(document).into_iter();
    let plot = plots.find(|plot| plot.id == id);
    plot.unwrap_or_else(|| panic!("no {id}")).html
}

#[test]
fn the_sheet_has_every_account_and_every_part() {
    let statement = kernel_level();
    let sheet = plot(&statement.clone().into(), "balance");
    for account in &statement.accounts {
        let of_account = format!(
            "<span class=\"name\">{}</span> <span>{}</span>",
            text(&account_name(account)),
            account.time
        );
        assert!(sheet.contains(&of_account), "{of_account} of {sheet}");
        for part in &account.parts {
            assert!(sheet.contains(&part.name), "{} of {sheet}", part.name);
        }
    }
    assert_eq!(
        sheet.matches("<details>").count(),
        sheet.matches("</details>").count()
    );
    assert!(sheet.contains("<span>100.0 %</span>"), "{sheet}");
}

#[test]
fn what_was_not_measured_is_not_drawn() {
    assert!(of(&empty().into()).is_empty());
    let ids: Vec<_> = of(&kernel_level().into()).iter().map(|it| it.id).collect();
    assert_eq!(ids, ["balance"]);
}

#[test]
fn shown_and_traced_stand_side_by_side() {
    let statement: Statement = accounting::checked();
    let check = statement.accounting.clone().unwrap();
    let html = plot(&statement.into(), "shown");
    let known = check.cpus.iter().filter(|cpu| cpu.busy_share.is_some());
    for cpu in known.clone() {
        let error = format!("<td>{:+.1}</td>", 100.0 * cpu.off().unwrap());
        assert!(html.contains(&error), "{error} of {html}");
    }
    assert_eq!(html.matches("<th scope=\"row\">").count(), known.count());
}

#[test]
fn curves_rise_and_end_at_the_longest() {
    let document: Document = pace::a_loop().into();
    let html = plot(&document, "curves");
    let curves: Vec<&str> = html.split("class=\"curve c").collect();
    assert!(curves.len() > 2, "{html}");
    for path in html
        .split(" d=\"")
        .filter(|path| path.starts_with('M') && path.contains('L'))
    {
        let (path, _) = path.split_once('"').unwrap();
        let steps = path.split(['M', 'L']).filter(|it| !it.is_empty());
        let steps: Vec<(f64, f64, f64)> = steps
            .map(|step| {
                let (from, to) = step.split_once('H').unwrap();
                let (x, y) = from.split_once(' ').unwrap();
                (x.parse().unwrap(), y.parse().unwrap(), to.parse().unwrap())
            })
            .collect();
        for pair in steps.windows(2) {
            // Times rise, so that y falls.
            assert!(
                pair[0].2 <= pair[1].0 + 0.11 && pair[0].1 >= pair[1].1,
                "{path}"
            );
        }
    }
    let figures = pace::a_loop().figures.unwrap();
    let longest = figures.frame_time.unwrap().max.0.to_string();
    assert!(
        html.contains(&format!("<td>{longest}</td>")),
        "{longest} of {html}"
    );
}

#[test]
fn effects_are_on_one_scale_with_their_intervals() {
    let statement = trials::two_arms();
    let html = plot(&statement.clone().into(), "effects");
    let effects = statement.comparisons.iter().filter_map(|it| it.effect);
    let drawn = html.matches("class=\"over\"").count();
    assert!(drawn > 0 && drawn <= effects.count(), "{html}");
    assert!(html.contains("-3.9"), "{html}");
}

#[test]
fn every_plot_has_its_numbers_as_text() {
    for document in super::documents() {
        let html = crate::html::page(&document);
        let read = read(&html);
        for plot in of(&document) {
            assert!(read.ids.contains(&plot.id.to_owned()), "{}", plot.id);
            assert!(
                plot.html.contains("<table>") || plot.id == "balance",
                "{}",
                plot.html
            );
        }
    }
}
