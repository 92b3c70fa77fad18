//! Published investigations: what was published, what a model makes of it, and how near that comes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Where the figures of a series are from, which says what it means to come near them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Measured and published: a row that does not calibrate is predicted.
    #[default]
    Measured,
    /// Arithmetic on what was published, or a constant of the kernel: it is computed again.
    Arithmetic,
    /// Another model's: two models that agree may both be wrong.
    OtherModel,
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
    /// What was published, or the range of it.
    pub published: (f64, f64),
    /// What the model gives.
    pub modelled: f64,
    /// Whether the row calibrated the model, which then predicts nothing there.
    pub fit: bool,
    /// Where the figure is from.
    pub basis: Basis,
    /// How far off the model is.
    pub residual: f64,
    /// How far it may be.
    pub allowed: f64,
    /// Why it is known to fail there, where it is.
    pub fails: Option<String>,
}

impl Line {
    /// Whether the model says what was measured without having been told.
    pub fn is_prediction(&self) -> bool {
        !self.fit && self.basis == Basis::Measured
    }

    /// What the row is to the model, in a word.
    pub fn role(&self) -> &'static str {
        match (self.fit, self.basis) {
            (true, _) => "fit",
            (false, Basis::Measured) => "predicted",
            (false, Basis::Arithmetic) => "computed",
            (false, Basis::OtherModel) => "compared",
        }
    }

    /// Whether the model comes near enough.
    pub fn met(&self) -> bool {
        // Half a unit of the 12th digit is the arithmetic's, and not the model's.
        self.residual.abs() <= self.allowed + 1e-12 * self.modelled.abs()
    }
}

/// What there is to say beside the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseNotes {
    /// What the model does not give, and why.
    pub underivable: Vec<Remark>,
    /// What is odd about the published figures.
    pub artefacts: Vec<Remark>,
}

/// What was published beside what the model gives.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseStatement {
    /// The case.
    pub head: CaseHead,
    /// All rows, those of a series together.
    pub lines: Vec<Line>,
    /// What else the model says.
    pub remarks: Vec<Remark>,
    /// What there is to say beside.
    pub notes: CaseNotes,
}

/// A constant of a model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its value in the case's file.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it is from; nothing for one that is fitted.
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

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedRow {
    /// What it is for.
    pub at: String,
    /// The figure, or the middle of the range.
    pub middle: f64,
    /// The range, where one was published.
    pub range: Option<[f64; 2]>,
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

/// What a fit came to, beside what the file has.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseFit {
    /// The case.
    pub head: CaseHead,
    /// The outcome; `None` where nothing is fitted.
    pub outcome: Option<FitOutcome>,
}

/// The constants that rows gave.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FitOutcome {
    /// Each with what it came to.
    pub constants: Vec<(Constant, f64)>,
    /// What is left: the sum of the squares of the residuals, in units of what is allowed.
    pub misfit: f64,
    /// How many times the model was run.
    pub runs: u64,
    /// How well the model does on rows that it was not fitted to.
    pub hold_out: Vec<Remark>,
}
