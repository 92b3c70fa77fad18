//! Time as the whole project counts it: signed nanoseconds, never a bare integer.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point in time or a length of time, in nanoseconds.
///
/// A point is on `CLOCK_MONOTONIC` of the machine that was observed (of the virtual machine, of
/// the simulated one). The value is signed because the books subtract: an account may be overdrawn
/// by a sampled clock, and a statement that hid it would lie. The range is ±292 years.
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
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The latest time that can be told.
    pub const MAX: Self = Self(i64::MAX);

    /// A number of whole microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros * 1_000)
    }

    /// A number of whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A number of whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// Seconds, for people and for floating-point arithmetic. Exact up to 2^53 ns (104 days).
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The share that this time is of `whole`; 0 when `whole` is nothing.
    pub fn share_of(self, whole: Self) -> f64 {
        if whole.0 == 0 {
            0.0
        } else {
            self.0 as f64 / whole.0 as f64
        }
    }

    /// The time that two intervals, each given as (start, end), have in common.
    pub fn overlap(a: (Self, Self), b: (Self, Self)) -> Self {
        Self((a.1.min(b.1).0 - a.0.max(b.0).0).max(0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        Self(times.map(|t| t.0).sum())
    }
}

impl<'a> Sum<&'a Nanos> for Nanos {
    fn sum<I: Iterator<Item = &'a Self>>(times: I) -> Self {
        times.copied().sum()
    }
}

/// As a person reads it: three significant digits and a unit from `ns` to `s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
        let ns = self.0 as f64;
        let size = ns.abs();
        // The next unit begins where three digits would round up into it.
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
    fn overlap_of_intervals_that_do_not_touch_is_nothing() {
        let at = |a, b| (Nanos(a), Nanos(b));
        assert_eq!(Nanos::overlap(at(0, 10), at(10, 20)), Nanos::ZERO);
        assert_eq!(Nanos::overlap(at(0, 10), at(4, 6)), Nanos(2));
        assert_eq!(Nanos::overlap(at(4, 20), at(0, 6)), Nanos(2));
    }
}
