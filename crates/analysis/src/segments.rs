//! A queue that never moves its items in order to grow.
//!
//! A [`VecDeque`] doubles its buffer when the buffer is full, and copies all items into the new
//! one. For a history of 100,000 rows, this takes more than a millisecond, during which an audit
//! keeps the watched program from a CPU. The queue in this module therefore consists of segments of
//! limited size.

use std::collections::VecDeque;
use std::ops::{Bound, Index, IndexMut, RangeBounds, RangeFrom};

/// Number of items per segment. Moving this many takes a few microseconds.
const SIZE: usize = 1 << 10;

/// A double-ended queue in segments. All segments except the first and the last have [`SIZE`]
/// items, and no segment is empty.
#[derive(Clone, Debug)]
pub(crate) struct Segments<T> {
    all: VecDeque<VecDeque<T>>,
    len: usize,
    /// An empty segment, kept for the next time that one is needed.
    spare: Option<VecDeque<T>>,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self {
            all: VecDeque::new(),
            len: 0,
            spare: None,
        }
    }
}

impl<T> Segments<T> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.all.front()?.front()
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        self.all.back()?.back()
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.all.back_mut()?.back_mut()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (segment, offset) = self.place(index);
        self.all.get(segment)?.get(offset)
    }

    #[inline]
    pub(crate) fn push_back(&mut self, item: T) {
        self.len += 1;
        match self.all.back_mut() {
            Some(last) if last.len() < SIZE => last.push_back(item),
            _ => self.add_segment(item),
        }
    }

    #[cold]
    fn add_segment(&mut self, item: T) {
        // A short queue takes little memory, because its only segment grows with it.
        let room = if self.all.is_empty() { 0 } else { SIZE };
        let new = || VecDeque::with_capacity(room);
        let mut segment = self.spare.take().unwrap_or_else(new);
        segment.push_back(item);
        self.all.push_back(segment);
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.all.front_mut()?;
        let item = first.pop_front();
        if first.is_empty() {
            self.spare = self.all.pop_front();
        }
        self.len -= usize::from(item.is_some());
        item
    }

    #[inline]
    pub(crate) fn pop_front_if(&mut self, is_due: impl FnOnce(&T) -> bool) -> Option<T> {
        is_due(self.front()?).then(|| self.pop_front()).flatten()
    }

    /// Inserts `item` before the one at `index`, which is at most the length.
    pub(crate) fn insert(&mut self, index: usize, item: T) {
        let (segment, offset) = self.place(index);
        let Some(found) = self.all.get_mut(segment) else {
            return self.push_back(item);
        };
        found.insert(offset, item);
        self.len += 1;
        // Pass the last item of each full segment on to the next segment.
        for full in segment..self.all.len() {
            if self.all[full].len() <= SIZE {
                return;
            }
            let Some(passed) = self.all[full].pop_back() else {
                return;
            };
            match self.all.get_mut(full + 1) {
                Some(next) => next.push_front(passed),
                None => self.add_segment(passed),
            }
        }
    }

    /// Returns the number of items that satisfy `is_before`. They must all come first.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let segments = &self.all;
        let segment = segments.partition_point(|segment| segment.back().is_some_and(&is_before));
        let offset = match segments.get(segment) {
            Some(segment) => segment.partition_point(is_before),
            None => return self.len,
        };
        self.index(segment) + offset
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + use<'_, T> {
        self.all.iter().flatten()
    }

    /// Returns the items whose indices are in `range`. The range may extend beyond the end.
    pub(crate) fn range<R: RangeBounds<usize>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = &T> + use<'_, T, R> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        let end = end.min(self.len);
        let (first, offset) = self.place(start.min(end));
        let (last, rest) = self.place(end);
        let segments = self.all.iter().enumerate();
        let found = segments.skip(first).take(last + 1 - first);
        found.flat_map(move |(index, segment)| {
            let from = if index == first { offset } else { 0 };
            let until = if index == last { rest } else { segment.len() };
            segment.range(from..until)
        })
    }

    /// Returns the items at index `range.start` and above.
    pub(crate) fn range_mut(
        &mut self,
        range: RangeFrom<usize>,
    ) -> impl Iterator<Item = &mut T> + use<'_, T> {
        let (segment, offset) = self.place(range.start.min(self.len));
        let mut segments = self.all.range_mut(segment.min(self.all.len())..);
        let first = segments.next();
        let first = first.into_iter();
        let first = first.flat_map(move |first| first.range_mut(offset..));
        first.chain(segments.flatten())
    }

    /// Returns the segment that contains the item at `index`, and the item's index within that
    /// segment.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let first = self.all.front().map_or(0, VecDeque::len);
        match index.checked_sub(first) {
            None => (0, index),
            Some(later) => (1 + later / SIZE, later % SIZE),
        }
    }

    /// Returns the index of a segment's first item.
    fn index(&self, segment: usize) -> usize {
        let first = self.all.front().map_or(0, VecDeque::len);
        match segment.checked_sub(1) {
            None => 0,
            Some(full) => first + full * SIZE,
        }
    }
}

impl<T> Index<usize> for Segments<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        let (segment, offset) = self.place(index);
        &self.all[segment][offset]
    }
}

impl<T> IndexMut<usize> for Segments<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let (segment, offset) = self.place(index);
        &mut self.all[segment][offset]
    }
}

impl<T> FromIterator<T> for Segments<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut segments = Self::new();
        for item in items {
            segments.push_back(item);
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_oneof, proptest};

    use super::{SIZE, Segments};

    #[derive(Clone, Debug)]
    enum Change {
        Push(usize),
        Pop(usize),
        /// A share of the length, in thousandths.
        Insert(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let many = 0..2 * SIZE;
        prop_oneof![
            many.clone().prop_map(Change::Push),
            many.prop_map(Change::Pop),
            (0_usize..=1_000).prop_map(Change::Insert),
        ]
    }

    proptest! {
        #[test]
        fn segments_hold_what_a_deque_holds(
            changes in prop::collection::vec(change(), 0..30),
            from in any::<usize>(),
        ) {
            let (mut segments, mut deque) = (Segments::new(), VecDeque::new());
            let mut next = 0_u32;
            for change in changes {
                match change {
                    Change::Push(count) => for _ in 0..count {
                        next += 1;
                        segments.push_back(next);
                        deque.push_back(next);
                    },
                    Change::Pop(count) => for _ in 0..count {
                        assert_eq!(segments.pop_front(), deque.pop_front());
                    },
                    Change::Insert(share) => {
                        next += 1;
                        let index = deque.len() * share / 1_000;
                        segments.insert(index, next);
                        deque.insert(index, next);
                    },
                }
                assert_eq!(segments.len(), deque.len());
                assert_eq!((segments.front(), segments.back()), (deque.front(), deque.back()));
            }
            assert!(segments.iter().eq(&deque));
            assert!(segments.iter().rev().eq(deque.iter().rev()));
            let from = from % (deque.len() + 1);
            assert!(segments.range(from..).eq(deque.range(from..)));
            assert!(segments.range(..from).rev().eq(deque.range(..from).rev()));
            let half = from / 2;
            assert!(segments.range(half..from).eq(deque.range(half..from)));
            assert!(segments.range_mut(from..).eq(deque.range_mut(from..)));
            assert_eq!(segments.get(from), deque.get(from));
            assert_eq!(segments.get(deque.len()), None);
            if let Some(item) = deque.get_mut(from) {
                *item = 0;
                segments[from] = 0;
                assert_eq!(segments[from], deque[from]);
            }
        }
    }

    #[test]
    fn a_partition_is_found_at_each_place() {
        for dropped in [0, 1, SIZE - 1, SIZE, SIZE + 1] {
            let mut segments: Segments<usize> = (0..3 * SIZE).collect();
            for _ in 0..dropped {
                segments.pop_front();
            }
            for until in [0, 1, dropped, dropped + 1, SIZE, 2 * SIZE + 3, 3 * SIZE] {
                let found = segments.partition_point(|&item| item < until);
                assert_eq!(found, until.saturating_sub(dropped), "{dropped} {until}");
            }
        }
        assert_eq!(Segments::<u8>::new().partition_point(|_| true), 0);
    }

    /// Growing must not move items, because that would take long if there are many.
    #[test]
    fn items_stay_where_they_are() {
        let mut segments: Segments<usize> = (0..2 * SIZE).collect();
        let place = std::ptr::from_ref(&segments[SIZE + 1]);
        (0..100 * SIZE).for_each(|item| segments.push_back(item));
        assert_eq!(place, std::ptr::from_ref(&segments[SIZE + 1]));
    }
}
