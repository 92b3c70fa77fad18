//! Values of settings, and the code that parses and prints them.

use std::fmt;

use ticktax_model::Nanos;

use super::SettingError;

/// The kind of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer from the first number to the second, inclusive.
    Integer(i64, i64),
    /// A duration of at least 0.
    Duration,
    /// One of the listed words.
    Word(&'static [&'static str]),
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// A duration.
    Duration(Nanos),
    /// A word.
    Word(&'static str),
}

impl Kind {
    /// The kind for integers that are not negative.
    pub const COUNT: Self = Self::Integer(0, i64::MAX);

    /// The kind for values that are either `on` or `off`.
    pub const SWITCH: Self = Self::Word(&["on", "off"]);

    /// Parses a value of this kind.
    ///
    /// # Errors
    /// Returns an error if the value is invalid.
    pub fn parse(self, text: &str) -> Result<Value, SettingError> {
        match self {
            Self::Integer(min, max) => {
                let number: i64 = text
                    .parse()
                    .map_err(|_| SettingError::NotAnInteger(text.to_owned()))?;
                if (min..=max).contains(&number) {
                    Ok(Value::Integer(number))
                } else if max == i64::MAX {
                    Err(SettingError::TooSmall { number, min })
                } else {
                    Err(SettingError::OutOfRange { number, min, max })
                }
            }
            Self::Duration => Ok(Value::Duration(text.parse()?)),
            Self::Word(words) => words
                .iter()
                .find(|&&word| word == text)
                .map(|&word| Value::Word(word))
                .ok_or_else(|| SettingError::UnknownWord {
                    word: text.to_owned(),
                    words: words.to_vec(),
                }),
        }
    }
}

/// Describes the kind for the Markdown table of settings.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(min, i64::MAX) => write!(f, "integer of at least {min}"),
            Self::Integer(min, max) => write!(f, "integer from {min} to {max}"),
            Self::Duration => f.write_str("duration"),
            Self::Word(words) => write!(f, "`{}`", words.join("`, `")),
        }
    }
}

/// Prints the value exactly, so that [`Kind::parse`] reads back the same value. Durations are not
/// rounded.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
            Self::Duration(time) => f.write_str(&time.exact()),
        }
    }
}

impl Value {
    /// Creates the value `on` or `off`.
    pub const fn switch(is_on: bool) -> Self {
        Self::Word(if is_on { "on" } else { "off" })
    }

    /// Creates a value from a `usize`, such as a number of CPUs.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Creates a value from an unsigned number. A number above `i64::MAX` is clamped.
    pub fn unsigned(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Returns the integer, or 0 if the value has another variant. [`Kind::parse`] ensures that the
    /// variant matches the setting.
    pub const fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            Self::Duration(_) | Self::Word(_) => 0,
        }
    }

    /// Returns the integer as a `usize`.
    pub fn to_count(self) -> usize {
        usize::try_from(self.integer()).unwrap_or(0)
    }

    /// Returns the integer as a `u8`. The setting's [`Kind`] keeps it below 256.
    pub fn to_u8(self) -> u8 {
        u8::try_from(self.integer()).unwrap_or(u8::MAX)
    }

    /// Returns the duration, or 0 if the value has another variant.
    pub const fn duration(self) -> Nanos {
        match self {
            Self::Duration(time) => time,
            Self::Integer(_) | Self::Word(_) => Nanos::ZERO,
        }
    }

    /// Returns the word, or an empty string if the value has another variant.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Word(word) => word,
            Self::Integer(_) | Self::Duration(_) => "",
        }
    }

    /// Returns whether the value is `on`.
    pub fn is_on(self) -> bool {
        self.word() == "on"
    }
}
