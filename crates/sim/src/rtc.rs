//! When the kernel writes its clock into the hardware clock, and with which error.
//!
//! While its time is synchronised, Linux 2.4 checks two conditions at every tick. More than 660 s
//! must have passed since it last wrote the hardware clock. The tick must be within half a tick of
//! the middle of a second, because the hardware starts a new second when it is set
//! (`do_timer_interrupt`, `arch/i386/kernel/time.c`).

use ticktax_model::Nanos;

use crate::clock::Grid;

const SECOND: i64 = 1_000_000_000;
/// A write is due when more whole seconds than this have passed.
const WAIT: i64 = 660;

/// One write of the hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Time of the write, by the kernel's clock.
    pub at: Nanos,
    /// Error of the hardware clock from then on; negative if it is slow.
    pub error: Nanos,
}

/// All writes of the hardware clock in `length` by a kernel with these ticks. The previous write
/// was in second 0.
pub fn sets(ticks: &Grid, length: Nanos) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut last = 0;
    loop {
        // No tick before this second fulfils the first condition.
        let second = last + WAIT + 1;
        let Some(set) = set_in(ticks, second) else {
            // If ticks are too far apart to hit the middle, the next second is tried.
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

/// The first tick in a second that is close enough to its middle.
fn set_in(ticks: &Grid, second: i64) -> Option<Set> {
    let middle = Nanos(second * SECOND + SECOND / 2);
    let half = Nanos(ticks.step().0 / 2);
    let at = ticks.at(ticks.first_from(middle - half));
    let off = at - middle;
    // The hardware starts its second now, whereas the kernel's clock reads half a second.
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
