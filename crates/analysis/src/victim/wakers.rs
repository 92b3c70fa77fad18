//! Finds each thread's waker among the wake-up edges.

use ticktax_model::{Nanos, SourceId};

use crate::fast_map::FastMap;

/// Time and source of a wake-up.
pub(super) type Waking = (Nanos, SourceId);

/// Longest time from the start of a wake-up until the thread is runnable. The wake-up may require
/// an interrupt to another CPU.
const UNDERWAY: Nanos = Nanos::from_millis(1);

pub(super) fn leads_to((at, _): Waking, since: Nanos) -> bool {
    at <= since && since - at <= UNDERWAY
}

#[derive(Debug, Default)]
pub(super) struct Wakers(FastMap<i32, Wakings>);

#[derive(Debug, Default)]
struct Wakings {
    /// The two latest wake-ups with a known waker. By the time a wait's row arrives, the edge of
    /// the next wake-up may already have arrived.
    latest: [Option<Waking>; 2],
    /// Number of wake-ups, including those with an unknown waker.
    count: u64,
}

impl Wakers {
    pub(super) fn count(&mut self, tid: i32) {
        self.0.entry(tid).or_default().count += 1;
    }

    /// Returns how often thread `tid` was woken, or `None` if no thread's wake-up was recorded.
    pub(super) fn counted(&self, tid: i32) -> Option<u64> {
        let count = self.0.get(&tid).map_or(0, |wakings| wakings.count);
        (!self.0.is_empty()).then_some(count)
    }

    pub(super) fn note(&mut self, tid: i32, waking: Waking) {
        let latest = &mut self.0.entry(tid).or_default().latest;
        *latest = [latest[1], Some(waking)];
    }

    /// Returns the wake-up that made thread `tid` runnable at `since`, if known.
    pub(super) fn leading_to(&self, tid: i32, since: Nanos) -> Option<Waking> {
        let latest = self.0.get(&tid)?.latest.iter().flatten();
        latest
            .copied()
            .filter(|&waking| leads_to(waking, since))
            .max()
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Nanos, SourceId};

    use super::Wakers;

    #[test]
    fn a_wait_is_attributed_to_the_last_wake_up_before_it() {
        let mut wakers = Wakers::default();
        for (at, by) in [(100, 1), (5_000_000, 2), (6_000_000, 3)] {
            wakers.note(7, (Nanos(at), SourceId(by)));
        }
        let by = |since| wakers.leading_to(7, Nanos(since)).map(|(_, by)| by.0);
        assert_eq!(by(5_002_000), Some(2));
        assert_eq!(by(6_000_000), Some(3));
        // The last wake-up of thread 7 came too long before. No wake-up of thread 8 is known.
        assert_eq!(by(9_000_000), None);
        assert_eq!(wakers.leading_to(8, Nanos(6_000_000)), None);
    }
}
