//! Queues of upcoming events: a heap for each CPU, and a tournament tree that finds the CPU with
//! the earliest next event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ticktax_model::Nanos;

/// A priority queue of upcoming events, earliest first. Events with equal keys come out in
/// insertion order.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    entered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    key: i64,
    number: u64,
    event: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.number) == (other.key, other.number)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.key, self.number).cmp(&(other.key, other.number))
    }
}

impl<T: Copy> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            entered: 0,
        }
    }

    /// Inserts an event. `key` is either a time in ns or a tick number. All keys in one agenda must
    /// be of the same kind.
    pub(crate) fn push(&mut self, key: i64, event: T) {
        self.heap.push(Reverse(Entry {
            key,
            number: self.entered,
            event,
        }));
        self.entered += 1;
    }

    /// Returns the smallest key, or `i64::MAX` if the agenda is empty.
    pub(crate) fn first(&self) -> i64 {
        self.heap.peek().map_or(i64::MAX, |first| first.0.key)
    }

    /// Removes and returns the first event if its key is at most `key`; otherwise returns `None`.
    pub(crate) fn pop(&mut self, key: i64) -> Option<T> {
        if self.first() > key {
            return None;
        }
        self.heap.pop().map(|first| first.0.event)
    }
}

/// A tournament tree over the times of the CPUs' next events. An update takes log₂(CPUs)
/// comparisons. If two CPUs have events at the same time, the lower index comes first.
#[derive(Debug)]
pub(crate) struct Order {
    /// The winner of each match, as (time, CPU). The root is at index 1. The leaves, one per CPU,
    /// follow the matches.
    tree: Vec<(Nanos, usize)>,
    leaves: usize,
}

impl Order {
    pub(crate) fn new(cpus: usize) -> Self {
        let leaves = cpus.next_power_of_two();
        let mut tree = vec![(Nanos::MAX, usize::MAX); 2 * leaves];
        for cpu in 0..leaves {
            tree[leaves + cpu].1 = cpu;
        }
        Self { tree, leaves }
    }

    pub(crate) fn set(&mut self, cpu: usize, at: Nanos) {
        let mut place = self.leaves + cpu;
        if self.tree[place].0 == at {
            return;
        }
        self.tree[place].0 = at;
        while place > 1 {
            place /= 2;
            let winner = self.tree[2 * place].min(self.tree[2 * place + 1]);
            self.tree[place] = winner;
        }
    }

    /// Returns the time and the CPU of the earliest event.
    pub(crate) fn first(&self) -> (Nanos, usize) {
        self.tree[1]
    }
}

#[cfg(test)]
mod tests {
    use super::{Agenda, Order};
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    #[test]
    fn simultaneous_events_keep_their_order_of_insertion() {
        let mut agenda = Agenda::new();
        for (key, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.push(key, event);
        }
        assert_eq!(agenda.pop(2), None);
        let all: String = std::iter::from_fn(|| agenda.pop(9)).collect();
        assert_eq!(all, "abcd");
    }

    proptest! {
        #[test]
        fn the_first_event_is_the_earliest(times in prop::collection::vec((0_usize..13, 0_i64..50), 1..200)) {
            let mut order = Order::new(13);
            let mut all = [Nanos::MAX; 13];
            for (cpu, at) in times {
                order.set(cpu, Nanos(at));
                all[cpu] = Nanos(at);
                let first = all.iter().enumerate().map(|(cpu, &at)| (at, cpu)).min();
                prop_assert_eq!(Some(order.first()), first);
            }
        }
    }
}
