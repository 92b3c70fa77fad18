//! Finds the thread that handed over a lock, among the waits for other threads.

use std::collections::VecDeque;

use ticktax_model::Nanos;

use crate::fast_map::FastMap;

/// For each thread, the latest waits of other threads that it ended.
#[derive(Debug, Default)]
pub(super) struct Handovers(FastMap<i32, VecDeque<Wait>>);

/// The start of a wait, and the thread that waited.
type Wait = (Nanos, i32);

impl Handovers {
    /// Maximum number of waits kept for each thread that ended them.
    const MAX: usize = 1_024;
    /// Longest time from the end of a wait until the thread that held the lock waits in turn.
    const AFTER: Nanos = Nanos::from_millis(1);

    /// Adds a wait of thread `waiter`, which thread `ender` ended.
    pub(super) fn add(&mut self, ender: i32, start: Nanos, waiter: i32) {
        let waits = self.0.entry(ender).or_default();
        let before = waits.iter().rev();
        let later = before.take_while(|&&other| other > (start, waiter)).count();
        let place = waits.len() - later;
        let is_known = place > 0 && waits.get(place - 1) == Some(&(start, waiter));
        if !is_known {
            waits.insert(place, (start, waiter));
        }
        if waits.len() > Self::MAX {
            waits.pop_front();
        }
    }

    /// Returns the threads that started to wait around `time` until thread `ender` woke them.
    pub(super) fn around(&self, ender: i32, time: Nanos) -> impl Iterator<Item = i32> {
        let (from, to) = (time - Self::AFTER, time + Self::AFTER);
        let waits = self.0.get(&ender).into_iter();
        waits.flat_map(move |waits| {
            let first = waits.partition_point(|&(start, _)| start < from);
            let near = waits.range(first..);
            let near = near.take_while(move |&&(start, _)| start <= to);
            near.map(|&(_, waiter)| waiter)
        })
    }

    /// Removes the waits that started before `time`.
    pub(super) fn forget_before(&mut self, time: Nanos) {
        self.0.retain(|_, waits| {
            let old = waits.partition_point(|&(start, _)| start < time);
            waits.drain(..old);
            !waits.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Handovers;

    #[test]
    fn the_waits_around_a_time_are_found() {
        let mut waits = Handovers::default();
        let ms = Nanos::from_millis;
        for (start, waiter) in [(10, 8), (30, 9), (20, 7), (20, 7), (21, 6)] {
            waits.add(5, ms(start), waiter);
        }
        waits.add(4, ms(20), 3);
        let around = |waits: &Handovers, time| waits.around(5, ms(time)).collect::<Vec<i32>>();
        assert_eq!(around(&waits, 20), [7, 6]);
        assert_eq!(around(&waits, 31), [9]);
        assert_eq!(around(&waits, 25), [0; 0]);
        waits.forget_before(ms(21));
        assert_eq!(around(&waits, 20), [6]);
        assert!(waits.around(4, ms(20)).next().is_none());
    }

    #[test]
    fn the_number_of_waits_is_limited() {
        let mut waits = Handovers::default();
        for number in 0..5_000 {
            waits.add(5, Nanos::from_millis(number), 8);
        }
        assert_eq!(waits.0[&5].len(), Handovers::MAX);
        assert_eq!(waits.around(5, Nanos::from_millis(4_990)).count(), 3);
        assert_eq!(waits.around(5, Nanos::from_millis(9)).count(), 0);
    }
}
