//! Aliasing between a loop's rhythm and the kernel's tick sampling.
//!
//! Suppose that a loop on a grid has a period of p/q tick lengths L, where p and q have no common
//! factor. Its frames then start at q equally spaced phases of the tick. A tick samples a frame of
//! length w if it falls within the frame. The number of samples in q consecutive frames is the
//! number of multiples of L/q in an interval of length w, which is either ⌊qw/L⌋ or one more. Which
//! of the two it is depends only on when the loop was started.

use ticktax_model::Nanos;
use ticktax_model::pace::TickAlias;

/// An alias with more phases than this is not reported, because the samples are then accurate to
/// within a few percent.
const MAX_PHASES: i64 = 50;

/// Returns the alias of a loop that is busy for `work` in every `period`, over `frames` frames, on
/// a kernel that ticks every `tick`. Returns `None` if the phases drift relative to the tick, or if
/// there are too few frames.
pub fn tick_alias(period: Nanos, work: Nanos, tick: Nanos, frames: u64) -> Option<TickAlias> {
    if period <= Nanos::ZERO || tick <= Nanos::ZERO || work < Nanos::ZERO {
        return None;
    }
    let frames = i64::try_from(frames).ok()?;
    let phases = (1..=MAX_PHASES).find(|&q| stays(period, tick, q, frames))?;
    let ticks = (phases * period.0 + tick.0 / 2) / tick.0;
    // Count in units of 1/q tick to avoid rounding.
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

/// Returns whether the frames stay at `phases` phases. After that many frames, the tick must be
/// back at the same phase. The remaining error, added up over all frames, may be less than a
/// quarter of the distance between phases.
fn stays(period: Nanos, tick: Nanos, phases: i64, frames: i64) -> bool {
    if frames < 4 * phases {
        return false;
    }
    let rest = (phases * period.0).rem_euclid(tick.0);
    let missing = rest.min(tick.0 - rest);
    // The total error is the error of one round multiplied by the number of rounds.
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
    fn a_period_of_whole_ticks_is_sampled_always_or_never() {
        assert_eq!(alias(20_000_000, 3_000_000), Some((1, 5, 0.0, 0.2)));
        assert_eq!(alias(20_000_000, 4_000_000), Some((1, 5, 0.2, 0.2)));
        assert_eq!(alias(4_000_000, 2_400_000), Some((1, 1, 0.0, 1.0)));
    }

    #[test]
    fn a_period_of_fractional_ticks_is_sampled_more_evenly() {
        // At 60 frames per second, six frames take 25 ticks. If each takes 3 ms, four or five
        // of them are sampled.
        let (frames, ticks, min, max) = alias(16_666_667, 3_000_000).unwrap();
        assert_eq!((frames, ticks), (6, 25));
        assert!(
            (min - 0.16).abs() < 1e-6 && (max - 0.20).abs() < 1e-6,
            "{min} {max}"
        );
    }

    #[test]
    fn drifting_phases_have_no_alias() {
        // The phase moves by 137 µs per frame, so it passes through the whole tick in 29 frames.
        assert_eq!(alias(20_136_700, 3_000_000), None);
        assert_eq!(tick_alias(Nanos::from_millis(20), Nanos(1), TICK, 3), None);
        assert_eq!(alias(0, 1), None);
    }

    proptest! {
        /// Compares the bounds with the actual number of sampling ticks, counted one by one, for
        /// any start time.
        #[test]
        fn the_bounds_hold_and_are_reached(
            p in 1_i64..60, q in 1_i64..12, work in 0_i64..20_000_000, start in 0_i64..4_000_000,
        ) {
            // Make the tick 27720 units of 100 ns long, so that it is divisible by every q up to
            // 12.
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
            // The samples are right on average over all start times, so the bounds must enclose the
            // true share.
            prop_assert!(alias.min <= alias.truth + 1e-9 && alias.truth <= alias.max + 1e-9);
            // A loop that starts just after a tick gets the fewest samples. One that starts exactly
            // at a tick gets the most.
            prop_assert!((share(found(1)) - alias.min).abs() < 1e-9 || work * round % tick < round);
            prop_assert!((share(found(0)) - alias.max).abs() < 1e-9);
        }
    }
}
