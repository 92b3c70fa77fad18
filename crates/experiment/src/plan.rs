//! Plans the order of the runs in a trial.

use ticktax_model::Nanos;
use ticktax_sim::{Law, Stream};

/// A planned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the block that the run belongs to.
    pub block: u64,
    /// Position of the run within the block, from 0.
    pub position: u64,
    /// Index of the arm that runs.
    pub arm: usize,
}

/// Plans `blocks` blocks of runs for `arms` arms.
///
/// Each block runs every arm twice, in mirrored order: `A B B A`, or `C A B B A C`. A steady drift
/// therefore affects all arms equally. A new random order is drawn for each block, so periodic
/// disturbances do not favour any arm. If the arms do not differ, both signs of a block's
/// difference are then equally likely, as [`signed_rank`](crate::statistics::signed_rank) requires.
/// Equal seeds produce equal plans.
pub fn plan(arms: usize, blocks: u64, seed: u64) -> Vec<Slot> {
    let mut stream = Stream::new(seed, 0);
    let mut slots = Vec::new();
    for block in 0..blocks {
        let order = shuffled(arms, &mut stream);
        let mirrored = order.iter().chain(order.iter().rev());
        slots.extend((0..).zip(mirrored).map(|(position, &arm)| Slot {
            block,
            position,
            arm,
        }));
    }
    slots
}

/// Returns the arms in random order (Fisher–Yates).
fn shuffled(arms: usize, stream: &mut Stream) -> Vec<usize> {
    let mut order: Vec<usize> = (0..arms).collect();
    for last in (1..arms).rev() {
        let range = i64::try_from(last + 1).unwrap_or(i64::MAX);
        let drawn = stream.draw(&Law::Uniform(Nanos(0), Nanos(range)));
        order.swap(last, usize::try_from(drawn.0).unwrap_or(0));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::plan;

    #[test]
    fn every_block_has_every_arm_twice_and_mirrored() {
        for arms in 2..5 {
            let slots = plan(arms, 50, 7);
            assert_eq!(slots.len(), 50 * 2 * arms);
            for (block, slots) in slots.chunks(2 * arms).enumerate() {
                let order: Vec<usize> = slots.iter().map(|slot| slot.arm).collect();
                let mut sorted = order[..arms].to_vec();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..arms).collect::<Vec<_>>());
                assert!(order.iter().eq(order.iter().rev()), "{order:?}");
                assert!(slots.iter().all(|slot| slot.block == block as u64));
                let places = slots.iter().map(|slot| slot.position);
                assert!(places.eq(0..2 * arms as u64));
            }
        }
    }

    #[test]
    fn the_order_is_random_and_depends_on_the_seed_only() {
        assert_eq!(plan(2, 40, 1), plan(2, 40, 1));
        assert_ne!(plan(2, 40, 1), plan(2, 40, 2));
        let first = plan(2, 1_000, 3);
        let led = first
            .iter()
            .filter(|slot| slot.position == 0 && slot.arm == 0);
        // The expected count is 500, with a standard deviation of 16.
        let led = led.count();
        assert!((420..580).contains(&led), "{led}");
        assert!(plan(2, 0, 1).is_empty());
    }
}
