//! What woke each thread, from the wake-up edges.

use std::collections::HashMap;

use ticktax_model::{Nanos, SourceId};

/// A wake-up: when, and what it was by.
pub(super) type Waking = (Nanos, SourceId);

/// From the moment at which something begins to wake a thread until the thread may run: an interrupt
/// to another CPU may lie between.
const UNDERWAY: Nanos = Nanos::from_millis(1);

/// Whether this wake-up can be the one by which a thread might run from `since` on.
pub(super) fn leads_to((at, _): Waking, since: Nanos) -> bool {
    at <= since && since - at <= UNDERWAY
}

/// The latest wake-ups of each thread: the one of a wait that is handed out, and the next one, which
/// may have come by then.
#[derive(Debug, Default)]
pub(super) struct Wakers(HashMap<i32, [Option<Waking>; 2]>);

impl Wakers {
    /// Takes a wake-up of thread `tid`.
    pub(super) fn note(&mut self, tid: i32, waking: Waking) {
        let latest = self.0.entry(tid).or_default();
        *latest = [latest[1], Some(waking)];
    }

    /// The wake-up by which thread `tid` might run from `since` on.
    pub(super) fn of(&self, tid: i32, since: Nanos) -> Option<Waking> {
        let latest = self.0.get(&tid)?.iter().flatten();
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
    fn the_last_wake_up_before_a_wait_led_to_it() {
        let mut wakers = Wakers::default();
        for (at, by) in [(100, 1), (5_000_000, 2), (6_000_000, 3)] {
            wakers.note(7, (Nanos(at), SourceId(by)));
        }
        let by = |since| wakers.of(7, Nanos(since)).map(|(_, by)| by.0);
        assert_eq!(by(5_002_000), Some(2));
        assert_eq!(by(6_000_000), Some(3));
        // What woke it is not known: it was long before, or another thread's.
        assert_eq!(by(9_000_000), None);
        assert_eq!(wakers.of(8, Nanos(6_000_000)), None);
    }
}
