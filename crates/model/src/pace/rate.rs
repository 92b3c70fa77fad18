//! The frame rate of a loop.

use std::str::FromStr;

use crate::Nanos;

/// A number of frames per second, within [`FrameRate::RANGE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameRate(f64);

/// Why text is not a [`FrameRate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameRateError {
    /// The text is not a number.
    #[error("invalid rate `{0}`: use frames per second, for example 35 or 59.94")]
    Invalid(String),
    /// The number is outside [`FrameRate::RANGE`], so no loop can run at this rate.
    #[error("rate {0} out of range: use {min} to {max} frames per \
        second", min = FrameRate::RANGE.0, max = FrameRate::RANGE.1)]
    OutOfRange(String),
}

impl FrameRate {
    /// Lowest and highest frame rate, in frames per second.
    pub const RANGE: (f64, f64) = (1.0, 50_000.0);

    /// Frames per second.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns the frame period, rounded to the nearest ns.
    pub fn period(self) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the rate is at least 1, so the period is at most 1 s"
        )]
        Nanos((1e9 / self.0).round() as i64)
    }
}

impl FromStr for FrameRate {
    type Err = FrameRateError;

    fn from_str(text: &str) -> Result<Self, FrameRateError> {
        let rate = text.trim().parse().ok();
        let rate = rate.filter(|rate: &f64| rate.is_finite());
        let rate = rate.ok_or_else(|| FrameRateError::Invalid(text.to_owned()))?;
        if !(Self::RANGE.0..=Self::RANGE.1).contains(&rate) {
            return Err(FrameRateError::OutOfRange(text.to_owned()));
        }
        Ok(Self(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::FrameRate;
    use crate::Nanos;

    #[test]
    fn rates_out_of_range_are_rejected() {
        assert_eq!(
            "35".parse::<FrameRate>().unwrap().period(),
            Nanos(28_571_429)
        );
        for text in ["0", "-3", "0.5", "50001", "1e9", "nan", "inf", "", "fast"] {
            assert!(text.parse::<FrameRate>().is_err(), "{text}");
        }
        let error = "1e9".parse::<FrameRate>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rate 1e9 out of range: use 1 to 50000 frames per second"
        );
    }
}
