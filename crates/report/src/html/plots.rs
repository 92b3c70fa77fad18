//! What of a document is drawn: bars in the cells of tables, and curves with the numbers that they are made of below.
//!
//! Everything is drawn as SVG when the page is written, so that it is there on paper, without a script, and for whoever
//! reads it by ear: docs/decisions/0009-plots-are-drawn-at-export.md.

mod balance;
mod curves;
mod effects;
mod shown;

use std::fmt::Write;

use ticktax_model::document::Document;

/// A section with a plot.
pub(super) struct Plot {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) html: String,
}

/// The plots of a document, in the order of its page.
pub(super) fn of(document: &Document) -> Vec<Plot> {
    let plots = match document {
        Document::Statement(it) => vec![balance::plot(it), shown::plot(it)],
        Document::Pace(it) => vec![curves::of_loop(it)],
        Document::PaceComparison(it) => vec![curves::of_ways(it)],
        Document::Trial(it) => vec![effects::plot(it)],
        _ => Vec::new(),
    };
    plots.into_iter().flatten().collect()
}

/// A bar for a share of 0 to 1, whose number stands beside it.
fn bar(out: &mut String, share: f64, class: &str) {
    let length = 100.0 * share.clamp(0.0, 1.0);
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">\
         <rect class=\"whole\" width=\"100\" height=\"8\"/><rect class=\"{class}\" width=\"{length:.3}\" height=\"8\"/></svg>"
    );
}
