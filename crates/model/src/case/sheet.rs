//! Contents of a case's file: the constants of its model, and the published figures.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CaseHead, CaseNotes, Ends};

/// A constant of a model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Constant {
    /// Name.
    pub name: String,
    /// Value in the case's file.
    pub value: f64,
    /// Unit.
    pub unit: String,
    /// Published fact that states the value, in our words; `None` if the value is not published.
    pub fact: Option<String>,
    /// Where the fact stands in the source.
    pub place: Option<String>,
    /// Reason for choosing this value; empty if the value is published or fitted.
    pub reason: String,
    /// Range to search for the best fit; `None` if the constant is not fitted.
    pub fit_range: Option<[f64; 2]>,
}

/// A series of published figures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedSeries {
    /// Name.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Rows.
    pub rows: Vec<PublishedRow>,
}

/// A row of published figures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedRow {
    /// Row label.
    pub label: String,
    /// Published fact, in our words.
    pub fact: Option<String>,
    /// Where the fact stands in the source.
    pub place: Option<String>,
    /// Published number.
    pub published: Option<Ends>,
    /// Number derived from published numbers; `None` if nothing was derived.
    pub derived: Option<Ends>,
    /// Formula for the derived number, or one formula for each end of a range.
    pub formula: Vec<String>,
    /// Whether the model is fitted to this row.
    pub fit: bool,
}

/// Contents of a case's file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseSheet {
    /// Case.
    pub case: CaseHead,
    /// Constants of the case's model.
    pub constants: Vec<Constant>,
    /// Published series.
    pub series: Vec<PublishedSeries>,
    /// Remarks on the case.
    pub notes: CaseNotes,
}
