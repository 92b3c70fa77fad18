//! A collection of limited size that keeps the longest items. It leaves out items shorter than a
//! floor, which only rises.

use ticktax_model::Nanos;

/// A collection of items that have a length.
#[derive(Debug)]
pub(super) struct Kept<T> {
    items: Vec<T>,
    /// Maximum number of items that are kept.
    max: usize,
    length: fn(&T) -> Nanos,
    /// Minimum length of an item. Shorter items are left out.
    floor: Nanos,
    left_out: u64,
}

impl<T> Kept<T> {
    pub(super) fn new(max: usize, length: fn(&T) -> Nanos) -> Self {
        Self {
            items: Vec::new(),
            max,
            length,
            floor: Nanos::ZERO,
            left_out: 0,
        }
    }

    pub(super) fn push(&mut self, item: T) {
        if (self.length)(&item) < self.floor {
            self.left_out += 1;
            return;
        }
        if self.items.len() >= self.max {
            self.thin();
        }
        // The floor may have risen above the length of this item.
        if (self.length)(&item) < self.floor {
            self.left_out += 1;
        } else {
            self.items.push(item);
        }
    }

    /// Returns the items that were kept, in order of arrival until they are sorted.
    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    /// Sorts the items in place, because there can be a million of them.
    pub(super) fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        self.items.sort_unstable_by_key(key);
    }

    /// Returns the minimum length of an item that is kept. Exactly the shorter items were left out.
    pub(super) fn floor(&self) -> Nanos {
        self.floor
    }

    /// Returns the number of items that were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Drops about half of the items, starting with the shortest, and raises the floor accordingly.
    fn thin(&mut self) {
        let mut lengths: Vec<Nanos> = self.items.iter().map(self.length).collect();
        let half = lengths.len() / 2;
        let (_, &mut median, _) = lengths.select_nth_unstable(half);
        let before = self.items.len();
        for floor in [median, median + Nanos(1)] {
            self.floor = floor;
            self.items.retain(|item| (self.length)(item) >= floor);
            if self.items.len() < before {
                break;
            }
        }
        self.left_out += (before - self.items.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    use super::Kept;

    proptest! {
        /// The longest items are kept, items of equal length are either all kept or all dropped,
        /// and dropped items are counted.
        #[test]
        fn the_longest_items_are_kept_and_the_rest_counted(lengths in prop::collection::vec(0_i64..40, 0..400), max in 2_usize..50) {
            let mut kept = Kept::new(max, |length: &Nanos| *length);
            for &length in &lengths {
                kept.push(Nanos(length));
            }
            let floor = kept.floor();
            let expected = lengths.iter().copied().map(Nanos);
            let expected: Vec<Nanos> = expected.filter(|length| *length >= floor).collect();
            prop_assert_eq!(kept.items(), &expected);
            prop_assert!(kept.items().len() <= max);
            prop_assert_eq!(kept.left_out() + expected.len() as u64, lengths.len() as u64);
            prop_assert!(lengths.len() > max || kept.left_out() == 0);
        }
    }
}
