//! Orders in which a measurement visits memory.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Returns the numbers below `count` in a random order, which is the same for the same seed.
pub(crate) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut random = Pcg64::new(u128::from(seed), 0);
    let mut order: Vec<u32> = (0..count).collect();
    for last in (1..count).rev() {
        // A 64-bit product is close enough to uniform for 32-bit counts.
        let draw = random.next_u64() >> 32;
        let chosen = (draw * (u64::from(last) + 1)) >> 32;
        order.swap(last as usize, usize::try_from(chosen).unwrap_or(0));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn every_number_occurs_once_in_an_order_that_depends_on_the_seed() {
        let order = shuffled(1000, 1);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        assert_ne!(order, shuffled(1000, 2));
        let neighbours = order.windows(2).filter(|pair| pair[1] == pair[0] + 1);
        assert!(neighbours.count() < 10);
    }
}
