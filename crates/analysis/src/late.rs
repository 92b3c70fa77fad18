//! Sorted lists of items that arrive almost in order.

use std::collections::VecDeque;

/// Number of moves that are allowed regardless of the number of items.
const MOVES: u64 = 1 << 29;
/// Number of additional moves allowed per item. A probe's gap arrives after all rows of its CPU
/// that were in the same buffer, which can be 10,000 rows.
const MOVES_PER_ITEM: u64 = 8_192;

/// Inserts items into sorted lists, and limits the work for items that arrive late. A damaged
/// recording can have its rows in any order, which would make the work quadratic.
#[derive(Debug, Default)]
pub(crate) struct Inserter {
    items: u64,
    /// Number of items moved so far to make room for late ones.
    moves: u64,
}

impl Inserter {
    /// Inserts `item` after all items whose `key` is not larger. Drops it and returns `false` if
    /// items were so far out of order that the recording must be damaged.
    #[inline]
    pub(crate) fn insert<T, K: Ord>(
        &mut self,
        sorted: &mut VecDeque<T>,
        item: T,
        key: impl Fn(&T) -> K,
    ) -> bool {
        self.items += 1;
        let at = key(&item);
        if sorted.back().is_none_or(|last| key(last) <= at) {
            sorted.push_back(item);
            return true;
        }
        let place = sorted.partition_point(|other| key(other) <= at);
        let moves = place.min(sorted.len() - place) as u64;
        if self.moves + moves > MOVES.saturating_add(self.items.saturating_mul(MOVES_PER_ITEM)) {
            return false;
        }
        self.moves += moves;
        sorted.insert(place, item);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::Inserter;

    #[test]
    fn items_are_sorted_and_equal_ones_stay_in_order() {
        let (mut inserter, mut sorted) = (Inserter::default(), VecDeque::new());
        for item in [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd'), (1, 'e')] {
            assert!(inserter.insert(&mut sorted, item, |item| item.0));
        }
        let expected = [(1, 'b'), (1, 'e'), (2, 'd'), (3, 'a'), (3, 'c')];
        assert_eq!(sorted, expected);
    }

    #[test]
    fn the_work_for_late_items_is_limited() {
        let (mut inserter, mut sorted) = (Inserter::default(), VecDeque::new());
        // Each of the last items belongs in the middle.
        for item in (0..100_000).chain(200_000..300_000) {
            assert!(inserter.insert(&mut sorted, item, |&item| item));
        }
        let taken =
            (0..60_000).filter(|&k| inserter.insert(&mut sorted, 150_000 - k, |&item| item));
        let taken = taken.count();
        assert!((10_000..60_000).contains(&taken), "{taken}");
        // Items that arrive in order are still accepted.
        assert!(inserter.insert(&mut sorted, 400_000, |&item| item));
    }
}
