//! Work of a fixed length: arithmetic until the thread has used a given amount of CPU time.
//!
//! `CLOCK_THREAD_CPUTIME_ID` measures the length. Measured in elapsed time, a preempted thread
//! would do less work. With a fixed number of iterations, the length would depend on the CPU's
//! frequency. Tests of other clocks rely on "3 ms of work" being 3 ms of CPU time. Like the
//! scheduler, this clock charges interrupts to the thread, except on kernels with
//! `IRQ_TIME_ACCOUNTING`.

use std::hint::black_box;

use ticktax_model::Nanos;

use crate::clock::thread_cpu_time;

/// Number of iterations between two checks of the clock. They take 1 to 3 µs, so the work can take
/// that much longer than requested.
const ITERATIONS: u32 = 2_000;
/// Number of iterations between two checks of the clock when the length must be more precise.
/// Reading the clock then takes about as long as the iterations do.
const FEW_ITERATIONS: u32 = 50;

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

    /// Same as [`Work::new`], but ends more precisely, because the clock is read more often.
    pub(super) fn fine(length: Nanos) -> Self {
        Self {
            length,
            iterations: FEW_ITERATIONS,
        }
    }

    /// Does the work, and returns how much CPU time it took.
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
