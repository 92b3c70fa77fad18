//! Writes [`Document`](ticktax_model::document::Document)s down: a page of text or of HTML for a person, JSON
//! and metrics for programs; rows as a trace.
//!
//! Every number shown is in the document, or is a sum, a share or a rate of numbers in it. Nothing
//! here prints or looks at its surroundings: the caller says how wide the page is and whether it
//! may have colours, and gets a `String`; files of rows are written to the paths that it names. A sink
//! is a folder and a line: of documents in [`format`](Format), of rows in [`rows`](RowFormat).
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
