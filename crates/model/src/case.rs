//! Cases: published investigations, with the figures derived from them and a model's results.
//!
//! Three kinds of number appear side by side and are never mixed:
//! - *published*: quoted from the source, with its wording and precision;
//! - *derived*: computed from published numbers by a formula shown next to it;
//! - *model*: produced by ticktax's model, whose constants are fitted or assumed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod fit;
mod sheet;

pub use fit::{CaseFit, FitOutcome, Sensitivity, SensitivityPoint};
pub use sheet::{CaseSheet, Constant, PublishedRow, PublishedSeries};

/// A range of numbers. The ends are equal for a single number. `None` marks an open end.
pub type Ends = [Option<f64>; 2];

/// Identification of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseHead {
    /// Name of the case.
    pub name: String,
    /// One-line summary.
    pub title: String,
    /// Place and date of publication.
    pub source: String,
    /// Mechanism behind the effect, to the extent that the model covers it.
    pub mechanism: String,
}

/// All cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseList {
    /// Cases, sorted by name.
    pub cases: Vec<CaseTitle>,
}

/// One case in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseTitle {
    /// Name of the case.
    pub name: String,
    /// One-line summary.
    pub title: String,
}

/// A remark with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remark {
    /// Remark.
    #[serde(alias = "what")]
    pub topic: String,
    /// Reason for the remark.
    #[serde(alias = "why")]
    pub reason: String,
}

/// How a model result relates to the published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// The model was fitted to this row, so it is not a prediction.
    Fit,
    /// The model was not fitted to this row, and a published number exists for comparison.
    Predicted,
    /// No number was published, or the model produces none.
    NotComparable,
}

impl RowKind {
    /// Name of the relation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Predicted => "predicted",
            Self::NotComparable => "not comparable",
        }
    }
}

/// A row of the comparison between the model and the publication.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Name of the series.
    pub series: String,
    /// Unit of the series.
    pub unit: String,
    /// Label of the row within the series.
    pub label: String,
    /// Published text, quoted verbatim.
    pub quote: Option<String>,
    /// Published number.
    pub published: Option<Ends>,
    /// Number derived from published ones.
    pub derived: Option<Ends>,
    /// Result of the model.
    pub modelled: Option<f64>,
    /// How the model's result relates to the published figure.
    pub kind: RowKind,
    /// Deviation of the model from the derived number, or from the published number if nothing was
    /// derived. 0 if the result lies within a range.
    pub residual: Option<f64>,
    /// Largest allowed deviation.
    pub allowed: f64,
    /// Known reason why the model misses this row, if it does.
    pub known_failure: Option<String>,
    /// Free-parameter values that the model would need to match this row, such as `steps = 31`.
    pub only_with: Vec<String>,
}

impl Line {
    /// Whether the model is close enough; `None` if there is nothing to compare.
    pub fn met(&self) -> Option<bool> {
        let value = self.modelled.unwrap_or_default();
        // Tolerates rounding errors in the 12th digit, which are not the model's fault.
        let limit = self.allowed + 1e-12 * value.abs();
        Some(self.residual?.abs() <= limit)
    }

    /// Whether the result is as the case's file expects: close enough, or a known miss.
    pub fn as_expected(&self) -> bool {
        self.met()
            .is_none_or(|met| met != self.known_failure.is_some())
    }
}

/// A measured row added to a table of the case. It is not published, derived or modelled.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredRow {
    /// Series that the row extends. The row uses the unit of that series.
    pub series: String,
    /// Label of the row.
    pub label: String,
    /// Measured value.
    pub value: f64,
}

/// Remarks on a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseNotes {
    /// Figures that the model does not reproduce, with the reasons.
    pub not_reproduced: Vec<Remark>,
    /// Contradictions or gaps that the source leaves unresolved.
    pub oddities: Vec<Remark>,
}

/// Published figures compared with the results of the model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseStatement {
    /// Case.
    pub case: CaseHead,
    /// Constants of the model: fitted, published or assumed.
    pub constants: Vec<Constant>,
    /// All rows of the comparison, grouped by series.
    pub rows: Vec<Line>,
    /// Rows added by a measurement, if one was given.
    pub measured: Vec<MeasuredRow>,
    /// Measurements on this machine, if requested.
    pub this_machine: Vec<Remark>,
    /// How well the model predicts rows that were excluded from its calibration.
    pub hold_out: Vec<Remark>,
    /// Results for other values of the free parameters.
    pub sensitivity: Vec<Sensitivity>,
    /// Other remarks on the model.
    pub remarks: Vec<Remark>,
    /// Remarks on the case.
    pub notes: CaseNotes,
}

#[cfg(test)]
mod tests {
    use super::{Line, RowKind};

    #[test]
    fn rows_are_met_missed_or_not_comparable() {
        let line = |residual, fails: Option<&str>| Line {
            series: "s".to_owned(),
            unit: String::new(),
            label: "1".to_owned(),
            quote: None,
            published: None,
            derived: None,
            modelled: Some(1.0),
            kind: RowKind::Predicted,
            residual,
            allowed: 0.5,
            known_failure: fails.map(str::to_owned),
            only_with: Vec::new(),
        };
        assert_eq!(line(None, None).met(), None);
        assert!(line(None, None).as_expected());
        assert_eq!(line(Some(-0.5), None).met(), Some(true));
        assert!(!line(Some(0.6), None).as_expected());
        assert!(line(Some(0.6), Some("known")).as_expected());
        assert!(
            !line(Some(0.1), Some("known")).as_expected(),
            "a known miss that is met is unexpected"
        );
    }
}
