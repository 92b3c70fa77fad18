//! Snapshots of pages, and properties that all pages have.

pub(crate) mod accounting;
mod advice;
pub(crate) mod beats;
pub(crate) mod changes;
pub(crate) mod comparisons;
pub(crate) mod distributions;
mod golden;
pub(crate) mod groups;
pub(crate) mod incidents;
pub(crate) mod kernels;
mod knobs;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod net_experiment;
pub(crate) mod pace;
mod packets;
mod pressure;
pub(crate) mod properties;
pub(crate) mod samples;
pub(crate) mod screens;
mod stolen;
mod storage;
mod sure;
pub(crate) mod ticks;
mod timekeeping;
pub(crate) mod trials;
pub(crate) mod victims;

use ticktax_model::document::Document;

use crate::{Format, TextStyle, render};

/// Renders a document's page and checks that no line is too wide.
fn page(document: impl Into<Document>) -> String {
    let page = render(&document.into(), Format::default(), &TextStyle::default());
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    page
}
