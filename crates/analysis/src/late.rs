//! Sorted lists of items that arrive almost in order.

use crate::segments::Segments;

/// Number of moves allowed regardless of the number of items.
const MOVES: u64 = 1 << 29;
/// Number of additional moves allowed per item. A probe's gap arrives after all of its CPU's rows
/// that were in the same buffer, and there can be 10,000 of those.
const MOVES_PER_ITEM: u64 = 8_192;

/// Inserts items into sorted lists, and limits the work spent on items that arrive late. A damaged
/// recording can have its rows in any order, which would make the work quadratic.
#[derive(Debug, Default)]
pub(crate) struct Inserter {
    items: u64,
    /// Number of items moved so far to make room for late ones.
    moves: u64,
}

impl Inserter {
    /// Inserts `item` after all items whose `key` is not larger. If items were so far out of order
    /// that the recording must be damaged, drops it and returns `false`.
    #[inline]
    pub(crate) fn insert<T, K: Ord>(
        &mut self,
        sorted: &mut Segments<T>,
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

/// Same as [`Segments::partition_point`], but faster if the result is close to `near`.
pub(crate) fn partition_near<T>(
    sorted: &Segments<T>,
    near: usize,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    let near = near.min(sorted.len());
    let (mut low, mut high, mut step) = (0, sorted.len(), 1);
    if sorted.get(near).is_some_and(&is_before) {
        low = near + 1;
        while low + step < high {
            if !is_before(&sorted[low + step]) {
                high = low + step;
                break;
            }
            low += step + 1;
            step *= 2;
        }
    } else {
        high = near;
        while step < high {
            if is_before(&sorted[high - step]) {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 2;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(&sorted[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::{Inserter, Segments, partition_near};

    #[test]
    fn a_search_from_any_place_finds_the_same_item() {
        for count in 0..40 {
            let sorted: Segments<usize> = (0..count).map(|item| item / 2).collect();
            for key in 0..=count {
                let expected = sorted.partition_point(|&item| item < key);
                for near in 0..count + 3 {
                    let found = partition_near(&sorted, near, |&item| item < key);
                    assert_eq!(found, expected, "{count} {key} {near}");
                }
            }
        }
    }

    #[test]
    fn items_are_sorted_and_equal_ones_stay_in_order() {
        let (mut inserter, mut sorted) = (Inserter::default(), Segments::new());
        for item in [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd'), (1, 'e')] {
            assert!(inserter.insert(&mut sorted, item, |item| item.0));
        }
        let expected = [(1, 'b'), (1, 'e'), (2, 'd'), (3, 'a'), (3, 'c')];
        assert!(sorted.iter().eq(&expected), "{sorted:?}");
    }

    #[test]
    fn the_work_for_late_items_is_limited() {
        let (mut inserter, mut sorted) = (Inserter::default(), Segments::new());
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
