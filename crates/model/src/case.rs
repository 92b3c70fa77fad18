//! Published investigations: what was published, what follows from it, and what a model gives.
//!
//! Three kinds of number stand beside each other and are never mixed:
//! - *published*: in the source, in its words and its precision;
//! - *derived*: arithmetic on published numbers, by a formula that is shown;
//! - *model*: what ticktax's own model gives, with constants that were fitted or assumed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod fit;
mod sheet;

pub use fit::{CaseFit, FitOutcome, Sensitivity, SensitivityPoint};
pub use sheet::{CaseSheet, Constant, PublishedRow, PublishedSeries};

/// A number from and to: both are the same where it is one, and `None` where it is open.
pub type Ends = [Option<f64>; 2];

/// Which case it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseHead {
    /// Its name.
    pub name: String,
    /// What it is about, in a line.
    pub title: String,
    /// Where and when it was published.
    pub source: String,
    /// How it comes about, as far as the model says.
    pub mechanism: String,
}

/// All cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseList {
    /// Each, by name.
    pub cases: Vec<CaseTitle>,
}

/// A case in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseTitle {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub title: String,
}

/// A remark with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remark {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What a row of the model is beside what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// The model was fitted to it, and so predicts nothing there.
    Fit,
    /// The model was not fitted to it, and there is a number to compare with.
    Predicted,
    /// Nothing to compare: no number was published, or the model gives none.
    NotComparable,
}

impl RowKind {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Predicted => "predicted",
            Self::NotComparable => "not comparable",
        }
    }
}

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// The series.
    pub series: String,
    /// Its unit.
    pub unit: String,
    /// The row.
    pub at: String,
    /// What was published, in the source's words.
    pub quote: Option<String>,
    /// The number that was published.
    pub published: Option<Ends>,
    /// What follows from published numbers.
    pub derived: Option<Ends>,
    /// What the model gives.
    pub modelled: Option<f64>,
    /// What the model's number is beside the others.
    pub kind: RowKind,
    /// How far the model is off the derived number, or the published one where nothing is derived: 0
    /// within a range.
    pub residual: Option<f64>,
    /// How far it may be off.
    pub allowed: f64,
    /// Why the row is known to be missed, where it is.
    pub fails: Option<String>,
    /// Values of free parameters without which the row is missed, such as `steps = 31`.
    pub only_with: Vec<String>,
}

impl Line {
    /// Whether the model comes near enough; `None` where there is nothing to compare.
    pub fn met(&self) -> Option<bool> {
        let value = self.modelled.unwrap_or_default();
        // Half a unit of the 12th digit is the arithmetic's, and not the model's.
        let limit = self.allowed + 1e-12 * value.abs();
        Some(self.residual?.abs() <= limit)
    }

    /// Whether it comes out as its file says: near enough, or missed and known to be.
    pub fn as_expected(&self) -> bool {
        self.met().is_none_or(|met| met != self.fails.is_some())
    }
}

/// A row of a table of the case that was measured: neither published, nor derived from what was, nor the model's.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredRow {
    /// The series whose table it continues, in that series' unit.
    pub series: String,
    /// The row.
    pub at: String,
    /// What was measured.
    pub value: f64,
}

/// What there is to say beside the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseNotes {
    /// What the model does not reproduce, and why.
    pub not_reproduced: Vec<Remark>,
    /// What is odd about the source, and resolved by nothing that it says.
    pub oddities: Vec<Remark>,
}

/// What was published beside what the model gives.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseStatement {
    /// The case.
    pub head: CaseHead,
    /// The constants of the model: fitted, published or assumed.
    pub constants: Vec<Constant>,
    /// All rows, those of a series together.
    pub lines: Vec<Line>,
    /// Rows that a measurement adds to the tables, where one was given.
    pub measured: Vec<MeasuredRow>,
    /// What was measured on this machine, where that was asked for.
    pub here: Vec<Remark>,
    /// How well the model does on rows that it was not fitted to, when others calibrate it.
    pub hold_out: Vec<Remark>,
    /// What other values of the free parameters would give.
    pub sensitivity: Vec<Sensitivity>,
    /// What else the model says.
    pub remarks: Vec<Remark>,
    /// What there is to say beside.
    pub notes: CaseNotes,
}

#[cfg(test)]
mod tests {
    use super::{Line, RowKind};

    #[test]
    fn a_row_without_a_number_is_neither_met_nor_missed() {
        let line = |residual, fails: Option<&str>| Line {
            series: "s".to_owned(),
            unit: String::new(),
            at: "1".to_owned(),
            quote: None,
            published: None,
            derived: None,
            modelled: Some(1.0),
            kind: RowKind::Predicted,
            residual,
            allowed: 0.5,
            fails: fails.map(str::to_owned),
            only_with: Vec::new(),
        };
        assert_eq!(line(None, None).met(), None);
        assert!(line(None, None).as_expected());
        assert_eq!(line(Some(-0.5), None).met(), Some(true));
        assert!(!line(Some(0.6), None).as_expected());
        assert!(line(Some(0.6), Some("known")).as_expected());
        assert!(!line(Some(0.1), Some("known")).as_expected(), "it came out");
    }
}
