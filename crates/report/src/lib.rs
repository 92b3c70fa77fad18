//! Output of [`Document`](ticktax_model::document::Document)s: text and HTML for people, JSON and
//! metrics for programs, and traces of rows.
//!
//! Every number shown is in the document, or is a sum, share or rate of its numbers. This crate
//! neither prints nor reads its environment. The caller chooses the page width and colours, and
//! gets a `String`. Files of rows are written to the paths that the caller names.
//!
//! Each output is a module and a line in a list: document formats in [`format`](Format), formats of
//! rows in [`rows`](RowFormat).
#![forbid(unsafe_code)]

mod clean;
mod facts;
mod format;
mod html;
mod incidents;
mod json;
mod limitation;
mod openmetrics;
mod perfetto;
mod rows;
mod text;
mod view;
mod wakeups;

pub use clean::{clean, clean_page};
pub use facts::{FactsFolder, FactsSettings};
pub use format::{Format, render};
pub use html::HtmlFile;
pub use incidents::{
    Budget, INDEX_MAX, IncidentFolder, IncidentStore, IncidentStoreError, Recorded, Told,
    Unindexed, read_incidents,
};
pub use json::{json, schema};
pub use limitation::{LimitationWords, words as limitation_words};
pub use openmetrics::{metrics, metrics_protobuf};
pub use rows::{Finished, RowFileError, RowFiles, RowFormat, RowsEnded};
pub use text::{TextStyle, beat_news, glance, incident_line, not_kept_line, pace_line};
pub use view::{Grouping, Section, Sections, View};
