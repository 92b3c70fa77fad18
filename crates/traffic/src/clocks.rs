//! Measures the CPU time of a thread that sends or receives, and how much of it the thread spends
//! between system calls.

use ticktax_model::Nanos;

use ticktax_probes::clock::{now, thread_cpu_time};

/// One in this many calls is timed. Timing every call would cost too much, because reading the
/// clock takes a tenth as long as the shortest calls.
const EVERY: u64 = 16;

/// Upper limit for the measured time between two calls. The work between calls takes a few hundred
/// nanoseconds. If a measurement reaches this limit, the thread must have been interrupted, so the
/// measurement is not used.
const LONGEST: Nanos = Nanos::from_micros(20);

/// Counts a thread's calls, and estimates how much CPU time the thread spends between them.
#[derive(Debug)]
pub(super) struct CallClock {
    cpu_before: Nanos,
    calls: u64,
    /// When the last timed call returned.
    returned: Option<Nanos>,
    sampled: u64,
    between: Nanos,
}

impl CallClock {
    /// Starts the clock. Call this on the thread that makes the system calls.
    pub(super) fn start() -> Self {
        Self {
            cpu_before: thread_cpu_time(),
            calls: 0,
            returned: None,
            sampled: 0,
            between: Nanos::ZERO,
        }
    }

    /// Records that a call starts at `at`.
    pub(super) fn enter(&mut self, at: Nanos) {
        if let Some(returned) = self.returned.take() {
            let between = at - returned;
            if between < LONGEST {
                self.sampled += 1;
                self.between += between;
            }
        }
    }

    /// Records that a call has moved data and returned.
    pub(super) fn returned(&mut self) {
        self.calls += 1;
        if self.calls.is_multiple_of(EVERY) {
            self.returned = Some(now());
        }
    }

    /// Records that the thread is about to wait until its next call is due. The wait does not count
    /// as time between calls.
    pub(super) fn waits(&mut self) {
        self.returned = None;
    }

    /// Returns the number of calls that moved data.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the thread's CPU time since the start, and how much of it the thread spent between
    /// calls.
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
    use ticktax_probes::clock::now;

    #[test]
    fn time_between_calls_is_at_most_the_total() {
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
    fn interruptions_between_calls_are_not_work() {
        let mut clock = CallClock::start();
        for _ in 0..EVERY {
            clock.returned();
        }
        clock.enter(now() + Nanos::from_secs(1));
        assert_eq!(clock.stop().1, Nanos::ZERO);
    }
}
