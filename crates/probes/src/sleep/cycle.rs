//! Computes when wake-ups are due, and which of them a late wake-up covers.

use ticktax_model::Nanos;

use super::Wakeup;

/// A thread's due times. They are at regular intervals, regardless of delays.
#[derive(Debug)]
pub(super) struct Cycle {
    due: Nanos,
    interval: Nanos,
}

impl Cycle {
    pub(super) fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            due: first,
            interval,
        }
    }

    pub(super) fn due(&self) -> Nanos {
        self.due
    }

    /// Passes every wake-up that was due by `woke` to `sink`. Returns how many of them the thread
    /// missed.
    ///
    /// A thread that is more than an interval late has missed wake-ups. Each of them is recorded,
    /// with its delay since it was due. Without them, most of a long delay would be hidden
    /// (coordinated omission).
    pub(super) fn wake(&mut self, woke: Nanos, mut sink: impl FnMut(Wakeup)) -> u64 {
        sink(Wakeup {
            due: self.due,
            woke,
        });
        self.due += self.interval;
        let mut missed = 0;
        while self.due <= woke {
            sink(Wakeup {
                due: self.due,
                woke,
            });
            self.due += self.interval;
            missed += 1;
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Cycle;

    #[test]
    fn each_missed_wakeup_waits_from_its_due_time() {
        let mut cycle = Cycle::new(Nanos(1_000), Nanos(100));
        let mut latencies = Vec::new();
        let missed = [1_007, 1_450, 1_503].map(|woke| {
            cycle.wake(Nanos(woke), |wakeup| {
                latencies.push((wakeup.woke - wakeup.due).0);
            })
        });
        assert_eq!(missed, [0, 3, 0]);
        assert_eq!(latencies, [7, 350, 250, 150, 50, 3]);
        assert_eq!(cycle.due(), Nanos(1_600));
    }

    #[test]
    fn a_wakeup_at_the_next_due_time_has_missed_it() {
        let mut cycle = Cycle::new(Nanos(1_000), Nanos(100));
        assert_eq!(cycle.wake(Nanos(1_100), |_| ()), 1);
        assert_eq!(cycle.due(), Nanos(1_200));
    }
}
