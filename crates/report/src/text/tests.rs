//! Pages as they come out, and what holds for all of them.

pub(crate) mod accounting;
mod advice;
pub(crate) mod beats;
pub(crate) mod changes;
mod golden;
pub(crate) mod grids;
pub(crate) mod incidents;
pub(crate) mod kernels;
mod knobs;
pub(crate) mod net;
pub(crate) mod net_experiment;
pub(crate) mod pace;
mod packets;
pub(crate) mod properties;
pub(crate) mod samples;
pub(crate) mod screens;
mod sure;
pub(crate) mod ticks;
pub(crate) mod trials;
pub(crate) mod victims;

use ticktax_model::document::Document;

use crate::{Format, TextStyle, render};

/// The page of a document, none of whose lines is too long.
fn page(it: impl Into<Document>) -> String {
    let page = render(&it.into(), Format::default(), &TextStyle::default());
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    page
}
