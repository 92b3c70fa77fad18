//! The wall clock, which may be set at any time. What is measured goes by `ticktax_probes::clock`, which is not.

use std::time::{SystemTime, UNIX_EPOCH};

use ticktax_model::Nanos;
use ticktax_probes::clock;

/// The time now, in ms since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

/// What it would have shown, had it not been set since, at a time of `CLOCK_MONOTONIC`, in ms since 1970.
pub(crate) fn unix_ms_at(at: Nanos) -> i64 {
    let ago = clock::now() - at;
    unix_ms().saturating_sub(ago.0 / 1_000_000)
}
