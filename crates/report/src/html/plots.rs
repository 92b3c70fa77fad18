//! What of a document is drawn: bars and marks beside the numbers of tables (`strips`), and plots with two axes with the
//! numbers that they are made of below (`chart`).
//!
//! Everything is drawn as SVG when the page is written, so that it is there on paper, without a script, and for whoever
//! reads it by ear: docs/decisions/0009-plots-are-drawn-at-export.md.

mod axis;
mod balance;
mod cases;
mod changed;
mod chart;
mod curves;
mod effects;
mod incidents;
mod phases;
mod points;
mod predicted;
mod runs;
mod shown;
mod strips;

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
        Document::Statement(it) => {
            let beats = it.beats.as_ref();
            vec![
                balance::plot(it),
                shown::plot(it),
                curves::of_waits(it),
                beats.and_then(phases::spectrum),
                beats.and_then(phases::phases),
            ]
        }
        Document::Beats(it) => vec![phases::spectrum(it), phases::phases(it)],
        Document::Pace(it) => vec![curves::of_loop(it)],
        Document::PaceComparison(it) => vec![curves::of_ways(it)],
        Document::Changes(it) => vec![changed::accounts(it), changed::waits(it)],
        Document::Incidents(it) => vec![incidents::times(it)],
        Document::Incident(it) => vec![incidents::instead(it)],
        Document::Prediction(it) => vec![predicted::plot(it)],
        Document::Sweep(it) => vec![points::plot(it)],
        Document::Case(it) => vec![cases::of_case(it)],
        Document::CaseOnKernels(it) => vec![cases::of_kernels(it)],
        Document::KernelComparison(it) => vec![cases::of_loops(it)],
        Document::Trial(it) => vec![effects::plot(it), runs::plot(it)],
        Document::Numbers(it) => vec![effects::of_numbers(it)],
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
