//! What walking over objects costs a cache: lines touched, and when they no longer stay.

use std::collections::BTreeSet;

/// Objects that a walk touches one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// For each object of an item, how far apart two of them lie, and the offsets touched within.
    pub objects: Vec<(u64, Vec<u64>)>,
}

/// A set-associative cache that replaces what was used longest ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its size in bytes.
    pub size: u64,
    /// The length of a line in bytes, above 0.
    pub line: u64,
    /// Lines in a set, above 0.
    pub ways: u64,
}

impl Layout {
    /// The lines of `line` bytes that one item touches, where its objects begin on a line.
    pub fn lines(&self, line: u64) -> u64 {
        let lines = self.objects.iter().map(|(_, offsets)| {
            let lines: BTreeSet<u64> = offsets.iter().map(|offset| offset / line).collect();
            lines.len() as u64
        });
        lines.sum()
    }

    /// The numbers of the lines that `items` items touch, in the order of the walk. Each kind of
    /// object has an array of its own, which begins where the last one ends.
    fn walk(&self, items: u64, line: u64) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut start = 0;
        for (stride, _) in &self.objects {
            starts.push(start);
            start += stride * items;
        }
        let item = |n: u64| {
            let objects = self.objects.iter().zip(&starts);
            let touched = objects.flat_map(move |((stride, offsets), start)| {
                offsets
                    .iter()
                    .map(move |offset| (start + n * stride + offset) / line)
            });
            touched.collect::<BTreeSet<u64>>()
        };
        (0..items).flat_map(item).collect()
    }

    /// The lines that a second walk over `items` items finds missing in `cache`: those of sets
    /// that have to hold more than they can.
    pub fn misses(&self, items: u64, cache: &Cache) -> u64 {
        let sets = (cache.size / cache.line / cache.ways).max(1);
        let mut load = vec![0_u64; usize::try_from(sets).unwrap_or(1)];
        let lines: BTreeSet<u64> = self.walk(items, cache.line).into_iter().collect();
        for line in lines {
            load[usize::try_from(line % sets).unwrap_or(0)] += 1;
        }
        // A cyclic walk over more than a set holds finds each of its lines just replaced.
        load.into_iter().filter(|&lines| lines > cache.ways).sum()
    }

    /// The most items whose lines all fit in the cache, wherever they lie.
    pub fn capacity(&self, cache: &Cache) -> u64 {
        cache.size / cache.line / self.lines(cache.line).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Layout};
    use proptest::prelude::*;

    const MEGABYTE: Cache = Cache {
        size: 1 << 20,
        line: 64,
        ways: 16,
    };

    #[test]
    fn lines_laid_end_to_end_fit_until_the_cache_is_full() {
        let dense = Layout {
            objects: vec![(256, vec![0, 64, 128, 192])],
        };
        assert_eq!(dense.lines(64), 4);
        assert_eq!(dense.capacity(&MEGABYTE), 4096);
        assert_eq!(dense.misses(4096, &MEGABYTE), 0);
        assert!(dense.misses(4097, &MEGABYTE) > 0);
        // Of objects a page apart only one set in 64 is used.
        let sparse = Layout {
            objects: vec![(4096, vec![0])],
        };
        assert_eq!(sparse.capacity(&MEGABYTE), 16_384);
        assert_eq!(sparse.misses(256, &MEGABYTE), 0);
        assert!(sparse.misses(257, &MEGABYTE) > 0);
    }

    proptest! {
        #[test]
        fn more_items_never_miss_less(
            stride in 1_u64..40, offsets in prop::collection::vec(0_u64..2048, 1..5), n in 1_u64..2000
        ) {
            let layout = Layout { objects: vec![(stride * 64, offsets)] };
            let cache = Cache { size: 1 << 15, line: 64, ways: 4 };
            prop_assert!(layout.misses(n, &cache) <= layout.misses(n + 1, &cache));
        }
    }
}
