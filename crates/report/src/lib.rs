//! Output of [`Document`](ticktax_model::document::Document)s: text and HTML for people, JSON and
//! metrics for programs, and traces of rows.
//!
//! Every number shown is in the document, or is a sum, share or rate of its numbers. This crate
//! neither prints nor reads its environment. The caller chooses the page width and colours, and
//! gets a `String`, or names a writer.
//!
//! Each document format is a module and a line in [`format`](Format). [`HtmlPage`] and [`Perfetto`]
//! also receive rows.
#![forbid(unsafe_code)]

mod clean;
mod format;
mod html;
mod json;
mod limitation;
mod openmetrics;
mod perfetto;
mod text;
mod view;
mod wakeups;

pub use clean::{clean, clean_page};
pub use format::{Format, render};
pub use html::{HtmlPage, RowsEnded};
pub use json::{json, schema};
pub use limitation::{LimitationWords, words as limitation_words};
pub use openmetrics::{metrics, metrics_protobuf};
pub use perfetto::Perfetto;
pub use text::{TextStyle, beat_news, glance, incident_line, not_kept_line, pace_line};
pub use view::{Grouping, Section, Sections, View};
