//! Sinks that take rows as they come, and the document at the end.

use ticktax_model::SourceTable;
use ticktax_model::document::Document;
use ticktax_model::recording::Header;

/// What is known once the last row has come.
#[derive(Clone, Copy, Debug)]
pub struct RowsEnded<'a> {
    /// Everything about the recording but its rows.
    pub header: &'a Header,
    /// The sources that the rows named.
    pub sources: &'a SourceTable,
    /// What was made of the rows.
    pub document: &'a Document,
}
