//! Times and durations, with a dedicated type so that they are never bare integers. It holds signed
//! nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point in time or a duration, in nanoseconds.
///
/// Points in time are on the `CLOCK_MONOTONIC` of the observed machine, which can be a guest or a
/// simulated machine. The value is signed because a sampled clock can charge more time to accounts
/// than has passed. The remaining time is then negative, and clamping it to 0 would hide the error.
/// The range is ±292 years, and arithmetic saturates at its ends.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest time that can be represented.
    pub const MAX: Self = Self(i64::MAX);

    /// Converts whole microseconds. Like all conversions here, it saturates.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Converts whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Converts whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Converts whole days.
    pub const fn from_days(days: i64) -> Self {
        Self::from_secs(days.saturating_mul(86_400))
    }

    /// Returns whether the time is zero.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Formats the exact value with a unit so that it can be parsed again: `1.5ms`, `0s`. Negative
    /// times get a sign, and cannot be parsed.
    pub fn exact(self) -> String {
        let size = self.0.unsigned_abs();
        let fits = |(_, scale): &&(&str, u64)| size >= *scale;
        let Some((unit, scale)) = EXACT_UNITS.iter().find(fits) else {
            return "0s".to_owned();
        };
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (size / scale, size % scale);
        if rest == 0 {
            return format!("{sign}{whole}{unit}");
        }
        let digits = scale.ilog10() as usize;
        let part = format!("{rest:0digits$}");
        format!("{sign}{whole}.{}{unit}", part.trim_end_matches('0'))
    }

    /// Returns the time in seconds, for display and floating-point arithmetic. The conversion is
    /// exact up to 2^53 ns (104 days).
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns this time as a share of `whole`; 0 if `whole` is zero.
    pub fn share_of(self, whole: Self) -> f64 {
        if whole.0 == 0 {
            0.0
        } else {
            self.0 as f64 / whole.0 as f64
        }
    }

    /// Returns this time multiplied by `factor`, truncated to whole nanoseconds.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float-to-integer cast saturates, as intended"
    )]
    pub fn times(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as i64)
    }
}

/// Units in which [`Nanos::exact`] formats times, longest first.
const EXACT_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units accepted in durations, with their lengths in ns.
const UNITS: [(&str, i64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Error for text that is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration `{0}`: use a number with a unit, for example 20s, 500ms or 1h30m")]
pub struct DurationError(String);

/// Parses a duration, which must not be negative: `20s`, `27.5us`, `1h30m`. Fractions of a
/// nanosecond are dropped. A number without a unit is an error, and so is a duration of more than
/// 292 years.
impl FromStr for Nanos {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let parts = || {
            let mut rest = text.trim();
            let mut total = None;
            while !rest.is_empty() {
                let (part, tail) = first_part(rest)?;
                total = Some(total.unwrap_or(0_i64).checked_add(part)?);
                rest = tail;
            }
            total.map(Self)
        };
        parts().ok_or_else(|| DurationError(text.to_owned()))
    }
}

/// Parses the number and the unit at the start of `text`. Returns the length they stand for, in ns,
/// and the rest of the text; `None` if the text does not start with a number and a unit.
fn first_part(text: &str) -> Option<(i64, &str)> {
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, tail) = text.split_at(digits);
    let tail = tail.trim_start();
    let letters = tail.find(|c: char| !c.is_alphabetic());
    let (unit, tail) = tail.split_at(letters.unwrap_or(tail.len()));
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    // Integers avoid the rounding errors of binary fractions.
    let mut value = whole.parse::<i64>().ok()?.checked_mul(*scale)?;
    let (mut above, mut below) = (0_i64, 1_i64);
    for digit in part.chars() {
        above = above
            .checked_mul(10)?
            .checked_add(digit.to_digit(10)?.into())?;
        below = below.checked_mul(10)?;
    }
    let part = i128::from(above) * i128::from(*scale) / i128::from(below);
    value = value.checked_add(i64::try_from(part).ok()?)?;
    Some((value, tail.trim_start()))
}

impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Nanos {
    type Output = Self;
    #[inline]
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Nanos {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::ZERO, Add::add)
    }
}

impl<'a> Sum<&'a Nanos> for Nanos {
    fn sum<I: Iterator<Item = &'a Self>>(times: I) -> Self {
        times.copied().sum()
    }
}

/// Formats the time for display, with three significant digits and a unit from `ns` to `s`.
impl Nanos {
    /// Formats the time with two significant digits and a unit, the precision of a
    /// [`Histogram`](crate::Histogram)'s quantiles.
    pub fn rough(self) -> String {
        const UNITS: [(u64, &str); 4] = [
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "µs"),
            (1, "ns"),
        ];
        let size = self.0.unsigned_abs();
        let step = 10_u64.pow(size.max(1).ilog10().saturating_sub(1));
        let size = size.saturating_add(step / 2) / step * step;
        let known = UNITS.into_iter().find(|(scale, _)| size >= *scale);
        let (scale, unit) = known.unwrap_or((1, "ns"));
        let sign = if self.0 < 0 { "-" } else { "" };
        let digits = usize::from(scale > 1 && size < 10 * scale);
        format!("{sign}{:.digits$} {unit}", size as f64 / scale as f64)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
        let ns = self.0 as f64;
        let size = ns.abs();
        // Switch to the next larger unit as soon as rounding to three digits would reach it.
        let (scale, unit) = UNITS
            .iter()
            .copied()
            .rev()
            .find(|(scale, _)| size >= 0.9995 * scale)
            .unwrap_or(UNITS[0]);
        let value = ns / scale;
        let digits = match value.abs() {
            _ if unit == "ns" => 0,
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Nanos;

    #[test]
    fn conversions_saturate() {
        for longest in [
            Nanos::from_micros(i64::MAX),
            Nanos::from_millis(i64::MAX),
            Nanos::from_secs(i64::MAX),
            Nanos::from_days(i64::MAX),
        ] {
            assert_eq!(longest, Nanos::MAX);
        }
    }

    #[test]
    fn prints_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (15_349, "15.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (-2_500_000, "-2.50 ms"),
            (20_000_000_000, "20.0 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }

    #[test]
    fn rough_times_have_two_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (137, "140 ns"),
            (996, "1.0 µs"),
            (1_340, "1.3 µs"),
            (15_349, "15 µs"),
            (999_499, "1.0 ms"),
            (-2_560_000, "-2.6 ms"),
            (153_000_000, "150 ms"),
            (123_000_000_000, "120 s"),
        ] {
            assert_eq!(Nanos(ns).rough(), text);
        }
    }

    #[test]
    fn durations_are_parsed_and_malformed_ones_rejected() {
        for (text, ns) in [
            ("20s", 20_000_000_000),
            ("500ms", 500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1h 30min", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            ("27.5us", 27_500),
            ("0.1 ms", 100_000),
            ("0.3µs", 300),
            ("0s", 0),
            ("1.00000000049s", 1_000_000_000),
            ("9223372036.854775807s", i64::MAX),
            ("7d", 604_800_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
        for text in [
            "",
            " ",
            "20",
            "s",
            "ms",
            "-5s",
            "1.2.3s",
            ".5s",
            "5 parsecs",
            "NaNs",
            "1e9s",
            "3s4",
            "9223372036.854775808s",
            "99999999999s",
            "9000000d",
        ] {
            let error = text.parse::<Nanos>().unwrap_err().to_string();
            let expected = format!(
                "invalid duration `{text}`: use a number with a unit, for example 20s, 500ms or \
                 1h30m"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn exact_times_parse_back() {
        for ns in [
            0,
            1,
            999,
            1_000,
            27_500,
            1_500_000,
            2_000_000_000,
            2_000_000_001,
            i64::MAX,
        ] {
            assert_eq!(Nanos(ns).exact().parse(), Ok(Nanos(ns)), "{ns}");
        }
        assert_eq!(Nanos(1_500_000).exact(), "1.5ms");
        assert_eq!(Nanos(-1_500).exact(), "-1.5us");
    }
}
