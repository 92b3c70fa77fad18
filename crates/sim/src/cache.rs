//! Cache misses of a walk over objects: the lines touched, and how many of them stay cached.

use std::collections::BTreeSet;

/// Objects that a walk touches in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// For each kind of object of an item: the distance between two of them, and the offsets
    /// touched within one.
    pub objects: Vec<(u64, Vec<u64>)>,
}

/// A set-associative cache that replaces the least recently used line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Size in bytes.
    pub size: u64,
    /// Length of a line in bytes, above 0.
    pub line: u64,
    /// Number of lines per set, above 0.
    pub ways: u64,
}

impl Layout {
    /// Number of lines of `line` bytes that one item touches, if its objects start on a line.
    pub fn lines(&self, line: u64) -> u64 {
        let lines = self.objects.iter().map(|(_, offsets)| {
            let lines: BTreeSet<u64> = offsets.iter().map(|offset| offset / line).collect();
            lines.len() as u64
        });
        lines.sum()
    }

    /// Numbers of the lines that `items` items touch, in the order of the walk. Each kind of object
    /// has an array, which starts where the previous one ends.
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

    /// Number of lines that a second walk over `items` items finds missing in `cache`: those in
    /// sets that exceed their capacity.
    pub fn misses(&self, items: u64, cache: &Cache) -> u64 {
        let sets = (cache.size / cache.line / cache.ways).max(1);
        let mut load = vec![0_u64; usize::try_from(sets).unwrap_or(1)];
        let lines: BTreeSet<u64> = self.walk(items, cache.line).into_iter().collect();
        for line in lines {
            load[usize::try_from(line % sets).unwrap_or(0)] += 1;
        }
        // A cyclic walk over more lines than a set holds always finds the next line just replaced.
        load.into_iter().filter(|&lines| lines > cache.ways).sum()
    }

    /// Maximum number of items whose lines fit in the cache at any location.
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
        // Objects a page apart use only one set in 64.
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
