//! Errors from parsing or applying settings.

use ticktax_model::Nanos;
use ticktax_model::time::DurationError;

use super::Kind;

/// Why a value is invalid for a setting, or cannot be applied. The message does not name the
/// setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The text is not an integer.
    #[error("`{0}` is not an integer")]
    NotAnInteger(String),
    /// The number is below the minimum of a setting that has no maximum.
    #[error("{number} is too small: choose at least {min}")]
    TooSmall {
        /// The number.
        number: i64,
        /// Smallest valid number.
        min: i64,
    },
    /// The number is below the minimum or above the maximum.
    #[error("{number} is out of range: choose {min} to {max}")]
    OutOfRange {
        /// The number.
        number: i64,
        /// Smallest valid number.
        min: i64,
        /// Largest valid number.
        max: i64,
    },
    /// The text is not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The word is not among those that the setting accepts.
    #[error("unknown value `{word}`: choose from {}", words.join(", "))]
    UnknownWord {
        /// The word.
        word: String,
        /// The setting's words.
        words: Vec<&'static str>,
    },
    /// The TOML value has a type that settings of this kind do not accept.
    #[error("{}", expected(*.0))]
    WrongType(Kind),
    /// The TOML value is not a list.
    #[error("give a list of durations, for example [\"0ms\", \"1ms\"]")]
    NotAList,
    /// The scheduling policy does not have a slice that can be set.
    #[error("a slice can only be set for the policy eevdf")]
    NoSlice,
    /// The scheduling policy cannot use a timer to end slices.
    #[error("hrtick can only be set for the policy eevdf")]
    NoHrtick,
    /// The timer device has no bus frequency.
    #[error("a bus frequency can only be set for the device lapic")]
    NoBusFrequency,
    /// The timer device has no divisor.
    #[error("a divisor can only be set for the device lapic")]
    NoDivisor,
    /// The simulated time is longer than 24 h.
    #[error("{} is longer than 24h", .0.exact())]
    TooLong(Nanos),
}

/// Describes the TOML values that settings of this kind accept.
fn expected(kind: Kind) -> String {
    match kind {
        Kind::Integer(..) => "give an integer".to_owned(),
        Kind::Duration => "give a duration, for example \"3ms\"".to_owned(),
        Kind::Word(words) => format!("choose one of \"{}\"", words.join("\", \"")),
    }
}

/// Why a machine cannot be reconstructed from its recorded settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordedSettingError {
    /// This version does not have the setting.
    #[error("unknown setting `{0}`")]
    Unknown(String),
    /// The recorded value is invalid.
    #[error("{name}: {why}")]
    Invalid {
        /// Name of the setting.
        name: &'static str,
        /// The problem.
        why: SettingError,
    },
}
