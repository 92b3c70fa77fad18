//! Writes [`Document`](ticktax_model::document::Document)s down: a page of text or of HTML for a person, JSON
//! and metrics for programs; rows as a trace.
//!
//! Every number shown is in the document, or is a sum, a share or a rate of numbers in it. Nothing
//! here prints or looks at its surroundings: the caller says how wide the page is and whether it
//! may have colours, and gets a `String`, or names a writer. A sink of documents is a file and a line in [`format`](Format);
//! [`HtmlPage`] and [`Perfetto`] take rows as well.
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
