//! Float-to-integer conversions.

/// Rounds to the nearest integer. Times and slot numbers in a recording are far below 2^53 in
/// magnitude.
#[expect(clippy::cast_possible_truncation, reason = "saturates; see above")]
pub fn whole(x: f64) -> i64 {
    x.round() as i64
}

/// Truncates a non-negative number to an index.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at 0 and above; callers pass counts of bins far below 2^53"
)]
pub(super) fn index(x: f64) -> usize {
    x as usize
}
