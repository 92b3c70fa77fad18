//! Calibration of a case's model: the result of the fit, and how strongly the results depend on
//! each free parameter.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CaseHead, Constant, Remark};

/// Result of fitting a case's model, for comparison with the constants in the case's file.
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
    /// Remaining misfit: the sum of squared residuals over the fitted rows, each residual in units
    /// of its row's allowed deviation.
    pub misfit: f64,
    /// Number of times the fit ran the model.
    pub runs: u64,
    /// Remarks on how well the model predicts rows excluded from its calibration.
    pub hold_out: Vec<Remark>,
}

/// Sensitivity of the results to one free parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sensitivity {
    /// Name of the parameter.
    pub parameter: String,
    /// Unit.
    pub unit: String,
    /// Constants that were fitted again for each tested value of the parameter. All others kept
    /// their values.
    pub refitted: Vec<String>,
    /// Tested values of the parameter, in ascending order, with their results.
    pub points: Vec<SensitivityPoint>,
    /// Rows whose outcome depends on the parameter, each given by the name of its series and its
    /// label.
    pub rows: Vec<(String, String)>,
}

/// Results for one value of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SensitivityPoint {
    /// Value of the parameter.
    pub value: f64,
    /// Whether the case's file uses this value.
    pub used: bool,
    /// Number of rows that the model matches with this value.
    pub matched: usize,
    /// Number of rows with a published figure that the model can be compared with.
    pub comparable: usize,
    /// Result for each of the rows in [`Sensitivity::rows`], and whether it is close enough to the
    /// published figure.
    pub outcomes: Vec<(f64, bool)>,
}
