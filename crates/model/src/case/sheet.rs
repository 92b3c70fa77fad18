//! What a case's file says.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CaseHead, CaseNotes, Ends};

/// A constant of a model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its value in the case's file.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it is published, in the source's words; `None` where it is ours.
    pub quote: Option<String>,
    /// Why it is what it is; nothing for one that is published or fitted.
    pub from: String,
    /// Where it is to be found, from and to, where it is fitted.
    pub fit: Option<[f64; 2]>,
}

/// A series of published figures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedSeries {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Its rows.
    pub rows: Vec<PublishedRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedRow {
    /// What it is for.
    pub at: String,
    /// What was published, in the source's words.
    pub quote: Option<String>,
    /// The number that was published.
    pub published: Option<Ends>,
    /// What follows from published numbers.
    pub derived: Option<Ends>,
    /// By which formula, or the two of a range.
    pub formula: Vec<String>,
    /// Whether it calibrates.
    pub fit: bool,
}

/// What a case's file says.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseSheet {
    /// The case.
    pub head: CaseHead,
    /// The constants of its model.
    pub constants: Vec<Constant>,
    /// What was published.
    pub series: Vec<PublishedSeries>,
    /// What there is to say beside.
    pub notes: CaseNotes,
}
