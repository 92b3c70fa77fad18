//! Work of known length: arithmetic, until the thread's own CPU clock says that it is enough.
//!
//! The end is taken from `CLOCK_THREAD_CPUTIME_ID` rather than from the wall or from a count of
//! turns. By the wall, a thread that is preempted in the middle would work less; by a count, a CPU
//! that changes its frequency would work longer or shorter, and the truth would not be known. So
//! the truth of "3 ms of work" is what every other clock is compared with. Like the scheduler, that
//! clock counts interrupts that came meanwhile as the thread's own, except on kernels with
//! `IRQ_TIME_ACCOUNTING`.

use std::hint::black_box;

use ticktax_model::Nanos;

use crate::clock::thread_cpu_time;

/// Turns of arithmetic between two looks at the clock: 1 to 3 µs, by which work may be too long.
const TURNS: u32 = 2_000;
/// The same for work that has to end in time also where a clock is read as fast as a turn is done.
const FEW_TURNS: u32 = 50;

/// Something to do for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    length: Nanos,
    turns: u32,
}

impl Work {
    /// Work of this much CPU time.
    pub(super) fn new(length: Nanos) -> Self {
        Self {
            length,
            turns: TURNS,
        }
    }

    /// The same, more nearly this long, and with more time spent on reading the clock.
    pub(super) fn fine(length: Nanos) -> Self {
        Self {
            length,
            turns: FEW_TURNS,
        }
    }

    /// Does it; returns the CPU time that it took.
    #[inline]
    pub(super) fn burn(self) -> Nanos {
        if self.length <= Nanos::ZERO {
            return Nanos::ZERO;
        }
        let begin = thread_cpu_time();
        let mut state = 1_u64;
        loop {
            for _ in 0..self.turns {
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
    fn work_takes_its_cpu_time_and_says_how_much() {
        let before = thread_cpu_time();
        let told = Work::new(Nanos::from_millis(3)).burn();
        let used = thread_cpu_time() - before;
        assert!(Nanos::from_millis(3) <= told && told <= used);
        assert_eq!(Work::new(Nanos::ZERO).burn(), Nanos::ZERO);
    }
}
