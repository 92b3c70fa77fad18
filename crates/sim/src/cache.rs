//! Predicts the cache misses of a program that repeatedly walks over an array of items: how many
//! cache lines one walk touches, and how many of them have been evicted by the next walk.

use std::collections::BTreeSet;

/// Memory layout of the items that a walk visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Types of the objects that make up an item. For each type, the entry contains the distance in
    /// bytes between the objects of successive items, and the offsets accessed within an object.
    pub objects: Vec<(u64, Vec<u64>)>,
}

/// A set-associative cache with LRU replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Size in bytes.
    pub size: u64,
    /// Line size in bytes, at least 1.
    pub line: u64,
    /// Associativity: lines per set, at least 1.
    pub ways: u64,
}

impl Layout {
    /// Counts the cache lines that one item touches if each of its objects starts at a line
    /// boundary. `line` is the line size in bytes.
    pub fn lines(&self, line: u64) -> u64 {
        let lines = self.objects.iter().map(|(_, offsets)| {
            let lines: BTreeSet<u64> = offsets.iter().map(|offset| offset / line).collect();
            lines.len() as u64
        });
        lines.sum()
    }

    /// Lists the numbers of the lines that a walk over `items` items touches, item by item. The
    /// objects of each type form an array, and these arrays follow one another in memory.
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

    /// Counts the misses of a second walk over `items` items. If the first walk touched more lines
    /// of a set than the set can hold, every access to that set misses.
    pub fn misses(&self, items: u64, cache: &Cache) -> u64 {
        let sets = (cache.size / cache.line / cache.ways).max(1);
        let mut load = vec![0_u64; usize::try_from(sets).unwrap_or(1)];
        let lines: BTreeSet<u64> = self.walk(items, cache.line).into_iter().collect();
        for line in lines {
            load[usize::try_from(line % sets).unwrap_or(0)] += 1;
        }
        // The walks touch the lines of a set in the same order each time. If there are more lines
        // than fit in the set, LRU has always just evicted the line that is needed next.
        load.into_iter().filter(|&lines| lines > cache.ways).sum()
    }

    /// Returns how many items fit in the cache if their lines are spread evenly over its sets.
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
        // If objects are 4096 bytes apart, all their lines map to the same one of 64 sets.
        let sparse = Layout {
            objects: vec![(4096, vec![0])],
        };
        assert_eq!(sparse.capacity(&MEGABYTE), 16_384);
        assert_eq!(sparse.misses(256, &MEGABYTE), 0);
        assert!(sparse.misses(257, &MEGABYTE) > 0);
    }

    proptest! {
        #[test]
        fn more_items_never_have_fewer_misses(
            stride in 1_u64..40, offsets in prop::collection::vec(0_u64..2048, 1..5), n in 1_u64..2000
        ) {
            let layout = Layout { objects: vec![(stride * 64, offsets)] };
            let cache = Cache { size: 1 << 15, line: 64, ways: 4 };
            prop_assert!(layout.misses(n, &cache) <= layout.misses(n + 1, &cache));
        }
    }
}
