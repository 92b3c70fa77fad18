//! Calibration: the result of a fit, and how sensitive the results are to a parameter.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CaseHead, Constant, Remark};

/// Result of a fit, for comparison with the constants in the case's file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseFit {
    /// Case.
    pub case: CaseHead,
    /// Outcome of the fit; `None` if the case has no fitted constants.
    pub outcome: Option<FitOutcome>,
}

/// The fitted constants.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FitOutcome {
    /// Constants with their fitted values.
    pub constants: Vec<(Constant, f64)>,
    /// Remaining misfit: the sum of squared residuals, in units of the allowed deviation.
    pub misfit: f64,
    /// Number of model runs.
    pub runs: u64,
    /// How well the model predicts rows that were excluded from its calibration.
    pub hold_out: Vec<Remark>,
}

/// How sensitive the results are to one free parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sensitivity {
    /// Name of the parameter.
    pub parameter: String,
    /// Unit.
    pub unit: String,
    /// Parameters that were refitted for each tested value. All other parameters kept their values.
    pub refitted: Vec<String>,
    /// Tested values, in ascending order.
    pub points: Vec<SensitivityPoint>,
    /// Rows whose outcome depends on the parameter, each as (series, row).
    pub rows: Vec<(String, String)>,
}

/// Results for one value of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SensitivityPoint {
    /// Value of the parameter.
    pub value: f64,
    /// Whether the case's file uses this value.
    pub used: bool,
    /// Number of comparable rows that the model matches.
    pub matched: usize,
    /// Number of comparable rows.
    pub comparable: usize,
    /// The result and whether it is close enough, for each of [`Sensitivity::rows`].
    pub outcomes: Vec<(f64, bool)>,
}
