//! What a loop's rhythm makes of the kernel's samples.
//!
//! A loop on a grid whose period is p/q of a tick's length (p and q without a common factor) begins
//! its frames at q phases of the tick, equally far apart. A frame of length w is found by every tick
//! that falls into it; over q frames in a row these are the multiples of L/q in an interval of w:
//! ⌊qw/L⌋ or one more, depending on the moment at which the loop was started, and on nothing else.

use ticktax_model::Nanos;
use ticktax_model::pace::TickAlias;

/// The most phases that are told: with more of them the samples are right to some percent.
const MAX_PHASES: i64 = 50;

/// The alias of frames that keep a CPU busy for `work`, every `period`, over `frames` of them, with ticks of
/// `tick`; `None` where their phases wander through the tick, or too few frames were seen.
pub fn tick_alias(period: Nanos, work: Nanos, tick: Nanos, frames: u64) -> Option<TickAlias> {
    if period <= Nanos::ZERO || tick <= Nanos::ZERO || work < Nanos::ZERO {
        return None;
    }
    let frames = i64::try_from(frames).ok()?;
    let phases = (1..=MAX_PHASES).find(|&q| stays(period, tick, q, frames))?;
    let ticks = (phases * period.0 + tick.0 / 2) / tick.0;
    // In q-th parts of a tick, so that nothing is rounded.
    let found = work.0.saturating_mul(phases) / tick.0;
    let exact = work.0.saturating_mul(phases) % tick.0 == 0;
    let share = |ticks_found: i64| {
        (ticks_found as f64 * tick.0 as f64 / (phases as f64 * period.0 as f64)).min(1.0)
    };
    Some(TickAlias {
        tick,
        frames: u32::try_from(phases).ok()?,
        ticks: u64::try_from(ticks).ok()?,
        truth: work.share_of(period),
        min: share(found),
        max: share(if exact { found } else { found + 1 }),
    })
}

/// Whether frames keep to `phases` phases: after so many of them the tick is where it was, and
/// what is missing to that adds up to less than a quarter of a phase's distance while they are seen.
fn stays(period: Nanos, tick: Nanos, phases: i64, frames: i64) -> bool {
    if frames < 4 * phases {
        return false;
    }
    let rest = (phases * period.0).rem_euclid(tick.0);
    let missing = rest.min(tick.0 - rest);
    // A round's error, as often as there are rounds.
    missing.saturating_mul(frames / phases) * 4 <= tick.0 / phases
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    use super::tick_alias;

    const TICK: Nanos = Nanos::from_millis(4);

    fn alias(period: i64, work: i64) -> Option<(u32, u64, f64, f64)> {
        let alias = tick_alias(Nanos(period), Nanos(work), TICK, 1_000)?;
        Some((alias.frames, alias.ticks, alias.min, alias.max))
    }

    #[test]
    fn a_frame_of_whole_ticks_is_seen_always_or_never() {
        assert_eq!(alias(20_000_000, 3_000_000), Some((1, 5, 0.0, 0.2)));
        assert_eq!(alias(20_000_000, 4_000_000), Some((1, 5, 0.2, 0.2)));
        assert_eq!(alias(4_000_000, 2_400_000), Some((1, 1, 0.0, 1.0)));
    }

    #[test]
    fn a_frame_of_parts_of_ticks_is_seen_more_evenly() {
        // 60 a second: six frames are 25 ticks. Of 3 ms, four or five of six are found.
        let (frames, ticks, min, max) = alias(16_666_667, 3_000_000).unwrap();
        assert_eq!((frames, ticks), (6, 25));
        assert!(
            (min - 0.16).abs() < 1e-6 && (max - 0.20).abs() < 1e-6,
            "{min} {max}"
        );
    }

    #[test]
    fn phases_that_wander_have_no_alias() {
        // It moves by 137 µs a frame: through the whole tick in 29 frames.
        assert_eq!(alias(20_136_700, 3_000_000), None);
        assert_eq!(tick_alias(Nanos::from_millis(20), Nanos(1), TICK, 3), None);
        assert_eq!(alias(0, 1), None);
    }

    proptest! {
        /// What the ticks find is counted one by one, from any moment on.
        #[test]
        fn the_bounds_hold_and_are_reached(
            p in 1_i64..60, q in 1_i64..12, work in 0_i64..20_000_000, start in 0_i64..4_000_000,
        ) {
            // In 1/27720 of the tick's length every q up to 12 divides evenly.
            let tick = 27_720 * 100;
            let (period, work) = (p * tick / q, work.min(p * tick / q - 1));
            let frames = 12 * 27_720;
            let Some(alias) = tick_alias(Nanos(period), Nanos(work), Nanos(tick), frames) else {
                return Err(TestCaseError::fail("no alias"));
            };
            let round = i64::from(alias.frames);
            let found = |start: i64| -> i64 {
                let ticks_before = |t: i64| t.div_euclid(tick) + i64::from(t.rem_euclid(tick) > 0);
                (0..round)
                    .map(|k| start + k * period)
                    .map(|at| ticks_before(at + work) - ticks_before(at))
                    .sum()
            };
            let share = |found: i64| found as f64 * tick as f64 / (round * period) as f64;
            let here = share(found(start));
            prop_assert!(here >= alias.min - 1e-9 && here <= alias.max + 1e-9);
            // The samples are right on average over all starts, so both bounds are about the truth.
            prop_assert!(alias.min <= alias.truth + 1e-9 && alias.truth <= alias.max + 1e-9);
            // A start right behind a tick is found least, one at a tick most.
            prop_assert!((share(found(1)) - alias.min).abs() < 1e-9 || work * round % tick < round);
            prop_assert!((share(found(0)) - alias.max).abs() < 1e-9);
        }
    }
}
