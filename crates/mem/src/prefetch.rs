//! Measures which lines the hardware fetches along with a line that was loaded.
//!
//! A CPU may fetch the other half of an aligned pair of lines, and may learn that a program loads
//! lines at a constant distance from each other. Both make a walk over objects faster than its
//! number of lines suggests. The first also fills the caches with lines that nobody loads.

use ticktax_model::mem::Prefetch;
use ticktax_probes::memory::Mapping;

use crate::measure::follow;
use crate::ring::shuffled;

/// Longest distance that is tried, in lines.
const FARTHEST: u64 = 8;
/// Lines from one block to the next. The number is odd, so the blocks use all sets of a cache, and
/// large enough that the lines of a block are far from those of the others.
const BLOCK: u64 = 19;
/// Maximum number of blocks, which limits the time of a measurement.
const BLOCKS: u64 = 200_000;
/// The second line of a pair comes along if a load of the pairs takes less than this share of a
/// load of lines that lie apart.
const PROFITS: f64 = 0.75;
/// Times that a distance is tried.
const ATTEMPTS: usize = 2;
/// Number of measurements of the room that a line takes.
const ROUNDS: usize = 5;
/// Share of a cache that lines fill which fit in it, but twice as many don't.
const FILLED: f64 = 0.6;
/// Twice as many lines must be slower by this factor to show that they do not fit.
const SLOWER: f64 = 1.5;

/// Measures in `memory`. Returns `None` if the memory is too small.
pub(crate) fn prefetch(memory: &mut Mapping, line: u64, cache_bytes: u64) -> Option<Prefetch> {
    let size = memory.size() as u64;
    explore(size, line, cache_bytes, |offsets| {
        follow(memory, offsets).median_ns
    })
}

/// Measures in `size` bytes of memory. `latency` returns the time in ns per load of a cycle through
/// these offsets.
fn explore(
    size: u64,
    line: u64,
    cache_bytes: u64,
    mut latency: impl FnMut(&[u64]) -> f64,
) -> Option<Prefetch> {
    let count = (size / (BLOCK * line)).min(BLOCKS) / 2;
    if 2 * count * BLOCK * line < cache_bytes.saturating_mul(4) {
        return None;
    }
    let start = |block: u32| (u64::from(block) * BLOCK + FARTHEST) * line;
    let order = shuffled(u32::try_from(count).ok()?, count);
    let firsts: Vec<u64> = order.into_iter().map(|block| start(2 * block)).collect();
    // As many lines as in all pairs, in the same memory, so the caches and the TLB affect both
    // alike.
    let apart = shuffled(u32::try_from(2 * count).ok()?, count);
    let apart: Vec<u64> = apart.into_iter().map(start).collect();
    let mut comes_along = |distance: i64| {
        let step = distance * line.cast_signed();
        let second = |first: u64| first.checked_add_signed(step);
        let pairs = firsts.iter().map(|&first| Some([first, second(first)?]));
        let pairs: Option<Vec<[u64; 2]>> = pairs.collect();
        // The time of a load drifts if other machines share the cache, so both are measured each
        // time.
        pairs.is_some_and(|pairs| {
            (0..ATTEMPTS).any(|_| {
                let alone = latency(&apart);
                latency(pairs.as_flattened()) < PROFITS * alone
            })
        })
    };
    let mut reach = |sign: i64| {
        let near = (1..=FARTHEST).take_while(|&lines| comes_along(sign * lines.cast_signed()));
        near.count() as u64
    };
    Some(Prefetch {
        after_lines: reach(1),
        before_lines: reach(-1),
        fetch_bytes: if fetches_pairs(line, cache_bytes, latency) {
            2 * line
        } else {
            line
        },
    })
}

/// Returns whether a line without its neighbour takes the room of two lines in a cache of this
/// size.
fn fetches_pairs(line: u64, cache_bytes: u64, mut latency: impl FnMut(&[u64]) -> f64) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a cache's size"
    )]
    let count = (cache_bytes as f64 * FILLED) as u64 / line;
    let mut measure = |count: u64, place: fn(u64) -> u64| {
        let order = shuffled(u32::try_from(count).unwrap_or(0), count);
        let offsets: Vec<u64> = order.iter().map(|&n| place(u64::from(n)) * line).collect();
        latency(&offsets)
    };
    // Both orders use one line of three, all sets of a cache and equally many pages, so the TLB
    // affects them alike. Their lines lie in aligned pairs, or each in a separate pair.
    let together = |n: u64| n / 2 * 6 + n % 2;
    let apart = |n: u64| n * 3;
    // Other programs and other machines only make a cycle slower, so the least times count.
    let mut least = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let times = [
            measure(count, together),
            measure(count, apart),
            measure(2 * count, together),
        ];
        least = std::array::from_fn(|place| least[place].min(times[place]));
    }
    let [fits, isolated, double] = least;
    double > fits * SLOWER && isolated > (fits * double).sqrt()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ticktax_model::mem::Prefetch;

    use super::explore;

    const LINE: u64 = 64;
    const CACHE: u64 = 64 << 10;
    const WAYS: usize = 8;

    /// A cache that replaces the least recently used line, and fetches more than was loaded.
    struct Simulated {
        before: u64,
        after: u64,
        pairs: bool,
    }

    impl Simulated {
        /// Returns the mean time of a load in ns in the second pass through these offsets.
        fn latency(&self, offsets: &[u64]) -> f64 {
            const SETS: u64 = CACHE / LINE / WAYS as u64;
            let mut sets: HashMap<u64, Vec<u64>> = HashMap::new();
            let mut touch = |line: u64| {
                let set = sets.entry(line % SETS).or_default();
                let place = set.iter().position(|cached| *cached == line);
                let hit = place.map(|place| set.remove(place)).is_some();
                set.push(line);
                if set.len() > WAYS {
                    set.remove(0);
                }
                hit
            };
            let mut total = 0.0;
            for pass in 0..2 {
                for line in offsets.iter().map(|offset| offset / LINE) {
                    let hit = touch(line);
                    if pass == 1 {
                        total += if hit { 1.0 } else { 10.0 };
                    }
                    if !hit {
                        let near = line.saturating_sub(self.before)..=line + self.after;
                        let pair = self.pairs.then_some(line ^ 1);
                        for other in near.chain(pair).filter(|other| *other != line) {
                            touch(other);
                        }
                    }
                }
            }
            total / offsets.len() as f64
        }

        fn explored(&self) -> [u64; 3] {
            let Prefetch {
                before_lines,
                after_lines,
                fetch_bytes,
            } = explore(4 << 20, LINE, CACHE, |offsets| self.latency(offsets)).unwrap();
            [before_lines, after_lines, fetch_bytes]
        }
    }

    #[test]
    fn the_lines_that_a_simulated_cache_fetches_are_found() {
        let mut cache = Simulated {
            before: 0,
            after: 0,
            pairs: false,
        };
        assert_eq!(cache.explored(), [0, 0, 64]);
        cache.after = 3;
        assert_eq!(cache.explored()[..2], [0, 3]);
        cache.before = 2;
        assert_eq!(cache.explored()[..2], [2, 3]);
        cache = Simulated {
            before: 0,
            after: 0,
            pairs: true,
        };
        assert_eq!(cache.explored()[2], 128);
    }

    #[test]
    fn memory_of_less_than_four_caches_is_too_small() {
        assert!(explore(4 * CACHE - 1, LINE, CACHE, |_| 1.0).is_none());
    }
}
