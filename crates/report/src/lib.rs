//! Renders [`Document`](ticktax_model::document::Document)s as text and HTML for people, and as
//! JSON and metrics for programs. Also builds traces from the rows of a recording.
//!
//! Every number shown is in the document, or is a sum, share or rate of numbers in it. This crate
//! neither prints anything nor reads its environment: the caller chooses the page width and
//! colours, and gets a `String` or passes a writer.
//!
//! Each document format has a module and an entry in the list behind [`Format`]. [`HtmlPage`] and
//! [`Perfetto`] also take the recording's rows.
#![forbid(unsafe_code)]

mod clean;
mod format;
mod html;
mod json;
mod limitation;
mod openmetrics;
mod perfetto;
mod profile;
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
pub use profile::{folded, pprof};
pub use text::{TextStyle, beat_news, glance, incident_line, not_kept_line, pace_line};
pub use view::{Grouping, Section, Sections, View};
