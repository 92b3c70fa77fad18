//! Parses `NAME=LIST`, which names a parameter and the values to try.
//!
//! ```
//! use ticktax_experiment::vary::Vary;
//!
//! let rates: Vary = "rate=35, 60".parse()?;
//! assert_eq!(rates.name(), "rate");
//! assert_eq!(rates.values::<u32>(), Ok(vec![35, 60]));
//! let error = "rate".parse::<Vary>().unwrap_err();
//! assert_eq!(error.to_string(), "`rate` has no values: use NAME=LIST, for example hz=100,250");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod loops;

use std::fmt::{self, Display};
use std::str::FromStr;

pub use loops::LoopVariants;

/// A parameter's name and its list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    name: String,
    list: String,
}

/// Error in a [`Vary`] or in its values. Displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VaryError(String);

impl Vary {
    /// The parameter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The list of values, as typed.
    pub fn list(&self) -> &str {
        &self.list
    }

    /// Creates an error about the values, prefixed with the parameter's name.
    pub fn error(&self, why: &dyn Display) -> VaryError {
        VaryError(format!("{}: {why}", self.name))
    }

    /// Parses the comma-separated values.
    ///
    /// # Errors
    /// Returns an error if a value is invalid or repeated.
    pub fn values<T>(&self) -> Result<Vec<T>, VaryError>
    where
        T: FromStr + PartialEq,
        T::Err: Display,
    {
        let mut values = Vec::new();
        for text in self.list.split(',').map(str::trim) {
            let value = text.parse().map_err(|why: T::Err| self.error(&why))?;
            if values.contains(&value) {
                return Err(self.error(&format_args!("duplicate value `{text}`")));
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Parses the values into `list`.
    ///
    /// # Errors
    /// Returns an error if [`Vary::values`] does, or if `list` already contains values.
    pub fn fill<T>(&self, list: &mut Vec<T>) -> Result<(), VaryError>
    where
        T: FromStr + PartialEq,
        T::Err: Display,
    {
        if !list.is_empty() {
            return Err(self.error(&"it is already varied"));
        }
        *list = self.values()?;
        Ok(())
    }
}

impl FromStr for Vary {
    type Err = VaryError;

    fn from_str(text: &str) -> Result<Self, VaryError> {
        let (name, list) = text
            .split_once('=')
            .map(|(name, list)| (name.trim(), list.trim()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                VaryError(format!(
                    "`{text}` has no values: use NAME=LIST, for example hz=100,250"
                ))
            })?;
        Ok(Self {
            name: name.to_owned(),
            list: list.to_owned(),
        })
    }
}

impl Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::Vary;

    #[test]
    fn errors_start_with_the_name() {
        for text in ["", "hz", "=1,2"] {
            let error = text.parse::<Vary>().unwrap_err().to_string();
            assert!(error.contains("use NAME=LIST"), "{text}: {error}");
        }
        for (text, why) in [
            ("rate=35,fast", "rate: invalid digit"),
            ("rate=35,60,35", "rate: duplicate value `35`"),
            ("rate=", "rate: "),
        ] {
            let vary: Vary = text.parse().unwrap();
            let error = vary.values::<u32>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn values_can_be_empty_or_contain_equals_signs() {
        let vary: Vary = "cmdline=,nohz=off highres=off".parse().unwrap();
        let values: Vec<String> = vary.values().unwrap();
        assert_eq!(values, ["", "nohz=off highres=off"]);
    }
}
