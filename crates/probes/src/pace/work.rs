//! Work of known length: arithmetic until the thread's CPU clock has advanced by the set time.
//!
//! The end is taken from `CLOCK_THREAD_CPUTIME_ID`, not from elapsed time or a count of iterations.
//! By elapsed time, a preempted thread would do less work. By a count, the work would take longer
//! or shorter when the CPU's frequency changes. The tests of other clocks need the true CPU time of
//! "3 ms of work". Like the scheduler, this clock charges interrupts during that time to the
//! thread, except on kernels with `IRQ_TIME_ACCOUNTING`.

use std::hint::black_box;

use ticktax_model::Nanos;

use crate::clock::thread_cpu_time;

/// Iterations between two checks of the clock: 1 to 3 µs, by which work can exceed its length.
const ITERATIONS: u32 = 2_000;
/// The same for work that must end on time even if reading the clock is as fast as an iteration.
const FEW_ITERATIONS: u32 = 50;

/// Work of a set CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    length: Nanos,
    iterations: u32,
}

impl Work {
    pub(super) fn new(length: Nanos) -> Self {
        Self {
            length,
            iterations: ITERATIONS,
        }
    }

    /// Like [`Work::new`] but closer to its length, at the cost of reading the clock more often.
    pub(super) fn fine(length: Nanos) -> Self {
        Self {
            length,
            iterations: FEW_ITERATIONS,
        }
    }

    /// Does the work; returns the CPU time used.
    #[inline]
    pub(super) fn burn(self) -> Nanos {
        if self.length <= Nanos::ZERO {
            return Nanos::ZERO;
        }
        let begin = thread_cpu_time();
        let mut state = 1_u64;
        loop {
            for _ in 0..self.iterations {
                state = black_box(
                    state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1),
                );
            }
            let used = thread_cpu_time() - begin;
            if used >= self.length {
                return used;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Work;
    use crate::clock::thread_cpu_time;

    #[test]
    fn work_takes_and_returns_its_cpu_time() {
        let before = thread_cpu_time();
        let reported = Work::new(Nanos::from_millis(3)).burn();
        let used = thread_cpu_time() - before;
        assert!(Nanos::from_millis(3) <= reported && reported <= used);
        assert_eq!(Work::new(Nanos::ZERO).burn(), Nanos::ZERO);
    }
}
