//! Predicts when Linux 2.4 sets the hardware clock (RTC), and how wrong the clock is afterwards.
//!
//! While the system time is synchronised, Linux 2.4 checks two conditions at every tick. First,
//! more than 660 s must have passed since it last set the hardware clock. Second, the tick must be
//! within half a tick period of the middle of a second, because setting the hardware clock restarts
//! its second (`do_timer_interrupt`, `arch/i386/kernel/time.c`).

use ticktax_model::Nanos;

use crate::clock::Grid;

const SECOND: i64 = 1_000_000_000;
/// Number of seconds that must have passed before the clock is set again.
const WAIT: i64 = 660;

/// One setting of the hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// When the clock was set, in system time.
    pub at: Nanos,
    /// Error of the hardware clock after it was set; negative if the clock is behind.
    pub error: Nanos,
}

/// Lists every time at which a kernel with these ticks sets the hardware clock, up to `length`.
/// Assumes that the clock was last set in second 0.
pub fn sets(ticks: &Grid, length: Nanos) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut last = 0;
    loop {
        // The earliest second that satisfies the 660 s condition.
        let second = last + WAIT + 1;
        let Some(set) = set_in(ticks, second) else {
            // No tick is close enough to the middle of this second, so try the next one.
            last += 1;
            if Nanos::from_secs(last) > length {
                return sets;
            }
            continue;
        };
        if set.at > length {
            return sets;
        }
        sets.push(set);
        last = second;
    }
}

/// Returns when and with what error the clock is set in `second`, or `None` if no tick is close
/// enough to the middle of that second.
fn set_in(ticks: &Grid, second: i64) -> Option<Set> {
    let middle = Nanos(second * SECOND + SECOND / 2);
    let half = Nanos(ticks.step().0 / 2);
    let at = ticks.at(ticks.first_from(middle - half));
    let off = at - middle;
    // Setting the hardware clock starts a new second, even though the system time is at half a
    // second.
    (off <= half).then_some(Set { at, error: -off })
}

#[cfg(test)]
mod tests {
    use super::sets;
    use crate::clock::Device;
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    proptest! {
        #[test]
        fn the_clock_is_set_every_661_s_to_within_half_a_tick(
            hz in prop::sample::select(&[100_u64, 250, 1000, 1024][..]), phase in 0_i64..900_000
        ) {
            let grid = Device::TscDeadline.grid(hz, Nanos(phase), 0).unwrap();
            let sets = sets(&grid, Nanos::from_secs(20_000));
            prop_assert_eq!(sets.len(), 30);
            for pair in sets.windows(2) {
                let apart = (pair[1].at - pair[0].at).0;
                prop_assert!((apart - 661_000_000_000).abs() <= grid.step().0);
            }
            prop_assert!(sets.iter().all(|set| set.error.0.abs() <= grid.step().0 / 2));
        }
    }
}
