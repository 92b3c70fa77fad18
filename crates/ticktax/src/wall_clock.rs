//! The wall clock, which can be set at any time. Measurements therefore use the monotonic clock in
//! `ticktax_probes::clock`.

use std::time::{SystemTime, UNIX_EPOCH};

use ticktax_model::Nanos;
use ticktax_probes::clock;

/// Returns the milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Converts a `CLOCK_MONOTONIC` time to wall-clock time, in milliseconds since 1970. The result is
/// correct only if the wall clock has not been set since `at`.
pub(crate) fn unix_ms_at(at: Nanos) -> i64 {
    let ago = clock::now() - at;
    unix_ms().saturating_sub(ago.0 / 1_000_000)
}
