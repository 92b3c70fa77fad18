//! Calibration: what a fit came to, and what other values of a parameter would give.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CaseHead, Constant, Remark};

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

/// What other values of one free parameter would give.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sensitivity {
    /// The parameter.
    pub parameter: String,
    /// Its unit.
    pub unit: String,
    /// The parameters that were fitted anew at each value; the others kept theirs.
    pub refitted: Vec<String>,
    /// The values that were tried, in ascending order.
    pub points: Vec<SensitivityPoint>,
    /// The rows whose outcome depends on it, as series and row.
    pub rows: Vec<(String, String)>,
}

/// One value of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SensitivityPoint {
    /// The value.
    pub value: f64,
    /// Whether it is the one in the case's file.
    pub used: bool,
    /// How many comparable rows are met.
    pub met: usize,
    /// How many there are.
    pub of: usize,
    /// What the model gives for each of [`Sensitivity::rows`], and whether that meets it.
    pub outcomes: Vec<(f64, bool)>,
}
