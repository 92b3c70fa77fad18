//! Plots of the figures in a document. `strips` draws bars and marks next to the numbers of a
//! table. `chart` draws plots with two axes above a table of their numbers.
//!
//! Plots are drawn as SVG when the page is written. They need no script and can be printed, and
//! screen readers have access to their numbers:
//! docs/explanation/decisions/0009-plots-are-drawn-at-export.md.

mod arms;
mod axis;
mod balance;
mod cases;
mod changed;
mod chart;
mod curves;
mod flame;
mod incidents;
mod memory;
mod phases;
mod runs;
mod shown;
mod strips;
mod walk;

use std::fmt::Write;

use ticktax_model::document::Document;

use crate::text::Topic;

/// A section of the page that contains a plot.
pub(super) struct Plot {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) topic: Topic,
    pub(super) html: String,
}

/// Draws the plots of a document, in the order in which they appear on the page.
pub(super) fn draw(document: &Document) -> Vec<Plot> {
    let plots = match document {
        Document::Statement(content) => {
            let beats = content.beats.as_ref();
            vec![
                balance::plot(content),
                flame::plot(content),
                shown::plot(content),
                curves::waits_plot(content),
                beats.and_then(phases::spectrum),
                beats.and_then(phases::phases),
            ]
        }
        Document::Beats(content) => vec![phases::spectrum(content), phases::phases(content)],
        Document::Pace(content) => vec![curves::loop_plot(content)],
        Document::Comparison(content) => vec![
            arms::effects_plot(content),
            arms::arms_plot(content),
            runs::plot(content),
            curves::comparison_plot(content),
            changed::waits(content),
        ],
        Document::Incidents(content) => vec![incidents::times(content)],
        Document::Incident(content) => vec![incidents::instead(content)],
        Document::MemLatency(content) => vec![memory::plot(content)],
        Document::MemWalk(content) => vec![walk::plot(content)],
        Document::Case(content) => vec![cases::case_plot(content)],
        Document::CaseOnKernels(content) => vec![cases::kernels_plot(content)],
        _ => Vec::new(),
    };
    plots.into_iter().flatten().collect()
}

/// Draws a bar for a share from 0 to 1. The caller writes the number next to it.
fn bar(out: &mut String, share: f64, class: &str) {
    let length = 100.0 * share.clamp(0.0, 1.0);
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">\
         <rect class=\"whole\" width=\"100\" height=\"8\"/><rect class=\"{class}\" width=\"{length:.3}\" height=\"8\"/></svg>"
    );
}
