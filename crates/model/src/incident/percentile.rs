//! Percentiles as trigger thresholds.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

const MILLION: u32 = 1_000_000;

/// A percentile from p50 to p99.9999, which is parsed from text and displayed as text. For example,
/// 99.9 % of values are below `p99.9`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Percentile {
    /// Share of values below the percentile, in millionths.
    millionths: u32,
}

impl Percentile {
    /// Number of values that must be expected above a percentile before it is estimated.
    const BEYOND: u32 = 10;

    /// Returns the share of values below the percentile, 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.millionths) / f64::from(MILLION)
    }

    /// Returns how many values an estimate needs at least. With that many values, ten of them are
    /// expected above the percentile.
    pub fn enough(self) -> u64 {
        u64::from((Self::BEYOND * MILLION).div_ceil(MILLION - self.millionths))
    }
}

/// Error for text that is not a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid percentile: choose p50 to p99.9999")]
pub struct PercentileError;

impl FromStr for Percentile {
    type Err = PercentileError;

    fn from_str(text: &str) -> Result<Self, PercentileError> {
        let digits = text.strip_prefix('p').ok_or(PercentileError)?;
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |text: &str| {
            (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(whole) || !is_number(part) {
            return Err(PercentileError);
        }
        // A percentage with four decimal places is a whole number of millionths.
        let whole: u32 = whole.parse().map_err(|_| PercentileError)?;
        let part: u32 = format!("{part:0<4}").parse().map_err(|_| PercentileError)?;
        let millionths = whole * 10_000 + part;
        let in_range = (MILLION / 2..MILLION).contains(&millionths);
        in_range
            .then_some(Self { millionths })
            .ok_or(PercentileError)
    }
}

impl TryFrom<String> for Percentile {
    type Error = PercentileError;

    fn try_from(text: String) -> Result<Self, PercentileError> {
        text.parse()
    }
}

impl From<Percentile> for String {
    fn from(percentile: Percentile) -> Self {
        percentile.to_string()
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.millionths / 10_000, self.millionths % 10_000);
        if part == 0 {
            return write!(f, "p{whole}");
        }
        let part = format!("{part:04}");
        write!(f, "p{whole}.{}", part.trim_end_matches('0'))
    }
}

/// A percentile of the last hour's delays that a new delay exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbovePercentile {
    /// Percentile.
    pub percentile: Percentile,
    /// Value of the percentile at the time of the delay.
    #[serde(rename = "limit_ns")]
    pub limit: Nanos,
}

#[cfg(test)]
mod tests {
    use super::Percentile;

    #[test]
    fn percentiles_round_trip_and_others_are_rejected() {
        for (typed, share, enough) in [
            ("p50", 0.5, 20),
            ("p99", 0.99, 1_000),
            ("p99.9", 0.999, 10_000),
            ("p99.99", 0.9999, 100_000),
            ("p99.9999", 0.999_999, 10_000_000),
        ] {
            let read: Percentile = typed.parse().unwrap();
            assert_eq!(read.to_string(), typed);
            assert!((read.share() - share).abs() < 1e-9, "{typed}");
            assert_eq!(read.enough(), enough, "{typed}");
            let json = serde_json::to_string(&read).unwrap();
            assert_eq!(json, format!("\"{typed}\""));
            assert_eq!(serde_json::from_str::<Percentile>(&json).ok(), Some(read));
        }
        assert_eq!("p99.90".parse::<Percentile>(), "p99.9".parse());
        for typed in [
            "",
            "p",
            "99",
            "p99.",
            "p.9",
            "p49.9",
            "p100",
            "p99.99999",
            "p-99",
            "p99,9",
            "p9e1",
            "p99999",
        ] {
            assert!(typed.parse::<Percentile>().is_err(), "{typed}");
        }
    }
}
