//! Errors in case files.

use super::check::MAX_ROWS;
use super::design::Design;

/// An error in a case file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct CaseError {
    /// Name of the file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub why: String,
}

/// A fault in a file, a parameter, a series, a row or the design. The message does not name the
/// faulty item, because the caller adds its name.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum CaseFault {
    /// The file has too many rows.
    #[error("too many rows ({rows}): give at most {max}", max = MAX_ROWS)]
    TooManyRows { rows: usize },
    /// There are parameters to fit, but no rows to fit them to.
    #[error("some parameters are to be fitted, but no row has `fit = true`")]
    NothingToFit,
    /// A parameter's value is not finite.
    #[error("its value must be finite")]
    ParameterNotFinite,
    /// The range of a fit, or its number of steps, is invalid.
    #[error(
        "invalid range for a fit, {low} to {high} in {steps} steps: give an ascending range, and 2 \
         to 1000 steps"
    )]
    FitRange { low: f64, high: f64, steps: u32 },
    /// The value of a fitted parameter is outside the range that the fit searches.
    #[error("its value is out of range: choose {low} to {high}")]
    OutsideFit { low: f64, high: f64 },
    /// A parameter is both published and fitted.
    #[error("a published value cannot be fitted")]
    PublishedFit,
    /// The file does not say whether a parameter's value is published, fitted or assumed.
    #[error("its origin is missing: use `fact` if published, `fit` if fitted, `from` if assumed")]
    NoOrigin,
    /// An alternative value of a parameter is not finite.
    #[error("try: {0} must be finite")]
    TryNotFinite(f64),
    /// A parameter has too many alternative values.
    #[error("try: too many values ({values}): give at most {max}", max = MAX_ROWS)]
    TooManyTried { values: usize },
    /// A parameter to be fitted anew does not exist, or is not a fitted one.
    #[error("refit: no other fitted parameter is called `{0}`")]
    Refit(String),
    /// Two series have the same name.
    #[error("duplicate name")]
    DuplicateSeries,
    /// The tolerance of a series is negative or not a number.
    #[error("{key} is {value}, but it must be a number that is not negative")]
    SeriesTolerance { key: &'static str, value: f64 },
    /// A series' scale is not finite.
    #[error("scale is {0}, but must be a finite number")]
    Scale(f64),
    /// A series has no rows.
    #[error("no rows")]
    NoRows,
    /// A series names a column of the scenario's results, but the file has no scenario.
    #[error("`measure` needs a [model] with a scenario")]
    NoModel,
    /// Two rows of a series have the same label.
    #[error("duplicate row")]
    DuplicateRow,
    /// A row has both a value and a range.
    #[error("give either a value or a range, not both")]
    ValueAndRange,
    /// A row's value is not finite.
    #[error("its value is {0}, but must be a number")]
    RowNotFinite(f64),
    /// A row's range is empty or contains NaN.
    #[error("invalid range {low} to {high}: give the smaller number first")]
    RowRange { low: f64, high: f64 },
    /// A row has `fit = true` but no number that constants could be fitted to.
    #[error("it has `fit = true`, but no number to fit to")]
    NoTarget,
    /// A row is of more than one kind.
    #[error("give only one of `fit`, `chosen` and `identity`")]
    Kinds,
    /// A constant that was chosen by looking at a row does not exist, or was published or fitted.
    #[error("chosen: no assumed parameter is called `{0}`")]
    Chosen(String),
    /// The tolerance of a row is negative or not a number.
    #[error("its tolerance is {0}, but it must be a number that is not negative")]
    RowTolerance(f64),
    /// The design has no switches, or too many of them.
    #[error("design: give 1 to {max} switches", max = Design::MAX)]
    Switches,
    /// The design lists a switch twice.
    #[error("design: duplicate switch")]
    DuplicateSwitch,
    /// An effect requires a switch that the design does not have.
    #[error("design: effect {effect}: unknown switch `{switch}`")]
    UnknownSwitch { effect: String, switch: String },
}

/// Why a derived value cannot be computed from its formula.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum FormulaError {
    /// The text is not a formula.
    #[error("derived: `{formula}` is not a formula: expected a number or an operator {}", at(.rest))]
    Syntax { formula: String, rest: String },
    /// The text is too long.
    #[error("derived: a formula may have at most {most} characters; shorten it")]
    Length { most: usize },
    /// The result is infinite or NaN.
    #[error("derived: the value of `{0}` must be finite")]
    NotFinite(String),
    /// The first formula's value is larger than the second's.
    #[error("derived: invalid range {low} to {high}: give the smaller number first")]
    Range { low: f64, high: f64 },
}

/// Describes where in a formula an error is. `rest` is the text from there on.
fn at(rest: &str) -> String {
    match rest {
        "" => "at its end".to_owned(),
        rest => format!("at `{rest}`"),
    }
}
