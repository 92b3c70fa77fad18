//! Errors in users' cases.

use std::path::PathBuf;

use ticktax_sim::SetupError;
use ticktax_sim::scenario::ScenarioError;

use super::effort::{Asked, MAX_EVENTS};
use crate::file::CaseError;
use ticktax_experiment::vary::{ArmError, VaryError};
use ticktax_store::text::TextError;

/// Why a user's case cannot be used. The message is one line that names the file.
#[derive(Debug, thiserror::Error)]
pub enum OwnCaseError {
    /// The case file or the scenario file is unreadable.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The case file is invalid.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Both files are valid, but they cannot be used together.
    #[error("{file}: {fault}")]
    Unusable {
        /// Path of the case file, as typed.
        file: String,
        /// The problem.
        fault: Box<OwnCaseFault>,
    },
}

/// Why a case cannot be used with its scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnCaseFault {
    /// The case does not name a scenario.
    #[error("no [model] section; give the scenario of the model as in docs/reference/case.md")]
    NoModel,
    /// The scenario is a directory or a device.
    #[error("scenario {} is not a regular file", path.display())]
    NotAFile {
        /// Path of the scenario.
        path: PathBuf,
    },
    /// A series names a column that the scenario's results do not have.
    #[error("series {series}: the scenario has no column `{column}`; see docs/reference/sweep.md")]
    NoColumn {
        /// Name of the series.
        series: String,
        /// Name of the column.
        column: String,
    },
    /// No series names a column of the scenario's results.
    #[error("no series has a `measure`, so there is nothing to compare")]
    NothingToCompare,
    /// A fitted parameter does not set anything in the scenario.
    #[error("{parameter}: a fitted parameter must have `sets`")]
    NoSets {
        /// Name of the parameter.
        parameter: String,
    },
    /// A row cannot be simulated.
    #[error("{series} at {at}: {why}")]
    Row {
        /// Name of the series.
        series: String,
        /// Label of the row.
        at: String,
        /// The problem.
        why: RowError,
    },
    /// A row cannot be simulated with one of the values in a parameter's list.
    #[error("{parameter}: {key}: {why}")]
    Value {
        /// Name of the parameter.
        parameter: String,
        /// Name of the list: `fit` or `try`.
        key: &'static str,
        /// The problem.
        why: RowError,
    },
    /// A row could not be simulated when the effort was estimated.
    #[error(transparent)]
    Effort(#[from] RowError),
    /// The operation would take too long.
    #[error(
        "it takes about {} million simulated events, but at most {} are allowed: shorten the \
         scenario's `length`, {}",
        events.div_ceil(1_000_000),
        MAX_EVENTS / 1_000_000,
        match asked {
            Asked::Run => "or use fewer rows or values to `try`",
            Asked::Fit => "or use fewer `steps`",
        }
    )]
    TooLong {
        /// The operation.
        asked: Asked,
        /// Number of events that would be simulated.
        events: u64,
    },
    /// Simulating each row once would take too long.
    #[error(
        "its rows take more than {} million simulated events: shorten the scenario's `length`, or \
         use fewer rows",
        MAX_EVENTS / 1_000_000
    )]
    RowsTooLong,
}

/// Why a row cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The row's label or a parameter sets something that the scenario doesn't have, or the value
    /// is invalid.
    #[error(transparent)]
    Axis(#[from] VaryError),
    /// With the row's values, the scenario is invalid.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// With the row's values, the scenario cannot be simulated.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A parameter sets something that the scenario doesn't have.
    #[error("{axis}: {why}")]
    Field {
        /// Name of the parameter.
        axis: String,
        /// The problem.
        why: String,
    },
    /// A parameter sets a duration, but its unit is not a unit of time.
    #[error("{axis} is a time, so its parameter's unit must start with ns, us, ms or s")]
    Unit {
        /// Name of the scenario parameter.
        axis: String,
    },
}
