//! The clocks of a thread that moves data: how much CPU time it used, and how much of that between its calls.

use ticktax_model::Nanos;

use crate::clock::{now, thread_cpu_time};

/// One call in so many is looked at: reading the clock takes a tenth of the shortest calls.
const EVERY: u64 = 16;

/// Between two calls there are some hundred nanoseconds of work: what took longer was interrupted.
const LONGEST: Nanos = Nanos::from_micros(20);

/// Counts a thread's calls, and tells what it did between them.
#[derive(Debug)]
pub(super) struct CallClock {
    cpu_before: Nanos,
    calls: u64,
    /// When a call that is looked at returned.
    returned: Option<Nanos>,
    sampled: u64,
    between: Nanos,
}

impl CallClock {
    /// From now on, in the thread that makes the calls.
    pub(super) fn start() -> Self {
        Self {
            cpu_before: thread_cpu_time(),
            calls: 0,
            returned: None,
            sampled: 0,
            between: Nanos::ZERO,
        }
    }

    /// A call is about to be made, at this time.
    pub(super) fn enter(&mut self, at: Nanos) {
        if let Some(returned) = self.returned.take() {
            let between = at - returned;
            if between < LONGEST {
                self.sampled += 1;
                self.between += between;
            }
        }
    }

    /// A call that moved data has returned.
    pub(super) fn returned(&mut self) {
        self.calls += 1;
        if self.calls.is_multiple_of(EVERY) {
            self.returned = Some(now());
        }
    }

    /// The thread waits for its rate: that is not between two calls.
    pub(super) fn waits(&mut self) {
        self.returned = None;
    }

    /// How many calls moved data.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// CPU time since the start, and how much of it was between calls.
    pub(super) fn stop(&self) -> (Nanos, Nanos) {
        let cpu = thread_cpu_time() - self.cpu_before;
        let each = self.between.0 as f64 / self.sampled.max(1) as f64;
        let user = Nanos(0).max(Nanos(1).times(each * self.calls as f64));
        (cpu, user.min(cpu))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{CallClock, EVERY};
    use crate::clock::now;

    #[test]
    fn what_is_between_calls_is_no_more_than_all_of_it() {
        let mut clock = CallClock::start();
        for _ in 0..EVERY * 100 {
            clock.enter(now());
            clock.returned();
        }
        let (cpu, user) = clock.stop();
        assert_eq!(clock.calls(), EVERY * 100);
        assert!(Nanos::ZERO < user && user <= cpu, "{user} of {cpu}");
    }

    #[test]
    fn what_took_long_between_calls_was_no_work() {
        let mut clock = CallClock::start();
        for _ in 0..EVERY {
            clock.returned();
        }
        clock.enter(now() + Nanos::from_secs(1));
        assert_eq!(clock.stop().1, Nanos::ZERO);
    }
}
