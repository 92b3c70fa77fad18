//! Cases: published investigations, the figures derived from them, and a model's results for
//! comparison.
//!
//! Figures come in three kinds, which are always kept apart:
//! - *published*: a fact from the source, in our words, with its precision and hedges, and the
//!   place in the source;
//! - *derived*: computed from published numbers by a formula that is shown next to the result;
//! - *model*: computed by ticktax's model, whose constants are fitted, published or assumed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::Contrast;

mod fit;
mod sheet;

pub use fit::{CaseFit, FitOutcome, Sensitivity, SensitivityPoint};
pub use sheet::{CaseSheet, Constant, PublishedRow, PublishedSeries};

/// A range of numbers, from lowest to highest, where `None` means an open end. For a single number,
/// both ends are equal.
pub type Ends = [Option<f64>; 2];

/// Name, source and subject of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseHead {
    /// Name of the case.
    pub name: String,
    /// One-line summary.
    pub title: String,
    /// Publication that the case is based on, with its date.
    pub source: String,
    /// Mechanism behind the published effect, as far as the model covers it.
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

/// A remark and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remark {
    /// Subject of the remark.
    #[serde(alias = "what")]
    pub topic: String,
    /// Reason for the remark.
    #[serde(alias = "why")]
    pub reason: String,
}

/// How a model's result relates to the published figure: whether it is a prediction, or agrees with
/// the figure for some other reason, or cannot be compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// The model was fitted to this row, so its result is not a prediction.
    Fit,
    /// A constant of the model was chosen by looking at this row, so the result does not predict it.
    Chosen,
    /// Neither the fit nor the choice of a constant used this row, and there is a published number
    /// to compare the result with.
    Predicted,
    /// The result follows from the source's own arithmetic, or from other rows. Agreement only shows
    /// that the arithmetic is right.
    Identity,
    /// No comparison is possible because no number was published or the model does not produce one.
    NotComparable,
}

impl RowKind {
    /// All kinds, in the order in which pages list them.
    pub const ALL: [Self; 5] = [
        Self::Predicted,
        Self::Chosen,
        Self::Fit,
        Self::Identity,
        Self::NotComparable,
    ];

    /// Returns the name of the kind, as used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Chosen => "chosen",
            Self::Identity => "identity",
            Self::Predicted => "predicted",
            Self::NotComparable => "not comparable",
        }
    }
}

/// A row of the comparison between a model's results and the published figures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Name of the series.
    pub series: String,
    /// Unit of the series.
    pub unit: String,
    /// Label of the row within the series.
    pub label: String,
    /// Published fact, in our words.
    pub fact: Option<String>,
    /// Where the fact stands in the source.
    pub place: Option<String>,
    /// Published number.
    pub published: Option<Ends>,
    /// Number derived from published numbers; `None` if nothing was derived.
    pub derived: Option<Ends>,
    /// Result of the model; `None` if the model does not produce one.
    pub modelled: Option<f64>,
    /// How the model's result relates to the published figure.
    pub kind: RowKind,
    /// Constants that were chosen by looking at this row.
    pub chosen: Vec<String>,
    /// Distance of the model's result from the derived number or, if nothing was derived, from the
    /// published number. If that number is a range, the residual is 0 anywhere inside it.
    pub residual: Option<f64>,
    /// Largest allowed deviation.
    pub allowed: f64,
    /// Why the model is known to miss this row; `None` if it is expected to match.
    pub known_failure: Option<String>,
    /// Settings of free parameters that would make the model match this row, such as `steps = 31`.
    pub only_with: Vec<String>,
}

impl Line {
    /// Returns whether the residual is within the allowed deviation; `None` if there is nothing to
    /// compare.
    pub fn met(&self) -> Option<bool> {
        let value = self.modelled.unwrap_or_default();
        // Tolerate rounding errors in the 12th digit, which are not the model's fault.
        let limit = self.allowed + 1e-12 * value.abs();
        Some(!Contrast::tolerance(self.residual?, limit).verdict.differs())
    }

    /// Returns whether the comparison has the outcome that the case's file expects: either the
    /// model matches the row, or it misses the row for a known reason.
    pub fn as_expected(&self) -> bool {
        self.met()
            .is_none_or(|met| met != self.known_failure.is_some())
    }
}

/// A measured row, added to one of the case's tables. Its value is neither published, derived nor
/// modelled.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredRow {
    /// Series that the row extends. The row uses the unit of that series.
    pub series: String,
    /// Label of the row.
    pub label: String,
    /// Measured value.
    pub value: f64,
}

/// The five lines that open a report on a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseSummary {
    /// Claim of the source.
    pub claim: String,
    /// Conclusion about the claim.
    pub verdict: String,
    /// Results of the model.
    pub model: String,
    /// Results of a real kernel, or the reason why none was run.
    pub kernel: String,
    /// Meaning of the case for current kernels.
    pub today: String,
}

/// Remarks on a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseNotes {
    /// Figures that the model does not reproduce, with the reasons.
    pub not_reproduced: Vec<Remark>,
    /// Contradictions and gaps in the source that could not be resolved.
    pub oddities: Vec<Remark>,
}

/// A case: its published figures, next to the results of the model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseStatement {
    /// Case.
    pub case: CaseHead,
    /// Opening lines of the report; `None` if the case file has none.
    pub summary: Option<CaseSummary>,
    /// Constants of the model: fitted, published or assumed.
    pub constants: Vec<Constant>,
    /// All rows of the comparison, grouped by series.
    pub rows: Vec<Line>,
    /// Rows added by a measurement, if one was given.
    pub measured: Vec<MeasuredRow>,
    /// Measurements on this machine, if requested.
    pub this_machine: Vec<Remark>,
    /// Remarks on how well the model predicts rows excluded from its calibration.
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
            fact: None,
            place: None,
            published: None,
            derived: None,
            modelled: Some(1.0),
            kind: RowKind::Predicted,
            chosen: Vec::new(),
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
