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
/// Maximum number of blocks. One line of each must take more room than a cache is likely to have
/// left, because the single loads would be faster than the pairs otherwise.
const BLOCKS: u64 = 100_000;
/// A load profits from an earlier one if it takes less than this share of a load on its own.
const PROFITS: f64 = 0.5;
/// Times that a distance is tried.
const ATTEMPTS: usize = 2;
/// Number of measurements of the room that a line takes. The majority counts.
const VOTES: usize = 5;
/// Share of a cache that lines fill which fit in it, but twice as many don't.
const FILLED: f64 = 0.6;
/// Twice as many lines must be slower by this factor to show that they do not fit.
const SLOWER: f64 = 1.5;

/// Measures in `memory`. Returns `None` if the memory is too small.
pub(crate) fn prefetch(memory: &mut Mapping, line: u64, cache_bytes: u64) -> Option<Prefetch> {
    let size = memory.size() as u64;
    let count = (size / (BLOCK * line)).min(BLOCKS);
    if count * BLOCK * line < cache_bytes.saturating_mul(4) {
        return None;
    }
    let order = shuffled(u32::try_from(count).ok()?, count);
    let start = |block: &u32| (u64::from(*block) * BLOCK + FARTHEST) * line;
    let firsts: Vec<u64> = order.iter().map(start).collect();
    let mut comes_along = |distance: i64| {
        let step = distance * line.cast_signed();
        let second = |first: u64| first.checked_add_signed(step);
        let pairs = firsts.iter().map(|&first| Some([first, second(first)?]));
        let pairs: Option<Vec<[u64; 2]>> = pairs.collect();
        // The time of a load drifts if other machines share the cache, so the single loads are
        // measured each time.
        pairs.is_some_and(|pairs| {
            (0..ATTEMPTS).any(|_| {
                let single = follow(memory, &firsts).median_ns;
                2.0 * follow(memory, pairs.as_flattened()).median_ns - single < PROFITS * single
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
        fetch_bytes: if fetches_pairs(memory, line, cache_bytes) {
            2 * line
        } else {
            line
        },
    })
}

/// Returns whether lines that lie apart from one another take the room of two lines each in a
/// cache of this size.
fn fetches_pairs(memory: &mut Mapping, line: u64, cache_bytes: u64) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a cache's size"
    )]
    let count = (cache_bytes as f64 * FILLED) as u64 / line;
    // Each third line lies in a separate pair, and the lines use all sets of a cache.
    let mut latency = |count: u64, apart: u64| {
        let order = shuffled(u32::try_from(count).unwrap_or(0), count);
        let offsets: Vec<u64> = order.iter().map(|&n| u64::from(n) * apart * line).collect();
        follow(memory, &offsets).median_ns
    };
    let mut is_pair = || {
        let (fits, apart, double) = (latency(count, 1), latency(count, 3), latency(2 * count, 1));
        double > fits * SLOWER && apart > (fits * double).sqrt()
    };
    (0..VOTES).filter(|_| is_pair()).count() > VOTES / 2
}
