//! Checks whether the counters of different CPUs agree. A reading on one CPU that is made between
//! two readings on another must have a value between theirs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::Builder;

use ticktax_model::{Cpu, CpuList, Nanos};

use super::super::{Counter, Hardware, now};
use crate::cpus;

/// Number of rounds per pair of CPUs. Each round compares one reading with two others.
const ROUNDS: u32 = 64;

/// Time limit per pair of CPUs. If the threads don't get to run often enough, fewer readings are
/// compared.
const LIMIT: Nanos = Nanos::from_millis(20);

/// Value of `turn` that ends the exchange.
const ENDED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) comparisons: u32,
    pub(super) backwards: u32,
}

/// State shared by two threads that take turns. The first thread has the even turns, the second the
/// odd ones.
struct Relay {
    turn: AtomicU32,
    reading: AtomicU64,
    deadline: Nanos,
}

impl Relay {
    /// Waits for turn number `turn`. Returns `false` if the other thread has ended the exchange, or
    /// if time is up.
    fn wait_for(&self, turn: u32) -> bool {
        for spins in 1_u32.. {
            match self.turn.load(Ordering::Acquire) {
                now if now == turn => return true,
                ENDED => return false,
                _ if spins % 1024 != 0 => std::hint::spin_loop(),
                _ if now() > self.deadline => return false,
                // On a busy machine, both threads may be waiting for the same CPU.
                _ => std::thread::yield_now(),
            }
        }
        false
    }

    /// Takes the two outer readings of each round, and compares them with the inner one.
    fn enclose(&self, counter: &mut impl Counter) -> Steps {
        let mut steps = Steps::default();
        for round in 0..ROUNDS {
            let before = counter.read();
            self.turn.store(2 * round + 1, Ordering::Release);
            if !self.wait_for(2 * round + 2) {
                break;
            }
            let after = counter.read();
            let between = self.reading.load(Ordering::Relaxed);
            steps.comparisons += 1;
            steps.backwards += u32::from(!(before..=after).contains(&between));
        }
        self.turn.store(ENDED, Ordering::Release);
        steps
    }

    /// Takes the inner reading of each round when it is this thread's turn.
    fn answer(&self, counter: &mut impl Counter) {
        for round in 0..ROUNDS {
            if !self.wait_for(2 * round + 1) {
                break;
            }
            self.reading.store(counter.read(), Ordering::Relaxed);
            let next = self.turn.compare_exchange(
                2 * round + 1,
                2 * round + 2,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if next.is_err() {
                break;
            }
        }
    }
}

/// Compares the counter of the first CPU in `cpus` with those of all others. Skips CPUs on which no
/// thread can be started.
pub(super) fn compare(cpus: &CpuList) -> Steps {
    let Some(reference) = cpus.iter().next() else {
        return Steps::default();
    };
    cpus.iter().skip(1).fold(Steps::default(), |sum, other| {
        let steps = compare_pair(reference, other, || Hardware);
        Steps {
            comparisons: sum.comparisons + steps.comparisons,
            backwards: sum.backwards + steps.backwards,
        }
    })
}

fn compare_pair<C: Counter>(reference: Cpu, other: Cpu, counter: impl Fn() -> C + Sync) -> Steps {
    let relay = Relay {
        turn: AtomicU32::new(0),
        reading: AtomicU64::new(0),
        deadline: now() + LIMIT,
    };
    let end_exchange = || relay.turn.store(ENDED, Ordering::Release);
    let answer = || match cpus::pin(other) {
        Ok(()) => relay.answer(&mut counter()),
        Err(_) => end_exchange(),
    };
    let enclose = || match cpus::pin(reference) {
        Ok(()) => relay.enclose(&mut counter()),
        Err(_) => Steps::default(),
    };
    std::thread::scope(|scope| {
        if Builder::new().spawn_scoped(scope, answer).is_err() {
            return Steps::default();
        }
        let Ok(first) = Builder::new().spawn_scoped(scope, enclose) else {
            end_exchange();
            return Steps::default();
        };
        first.join().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ticktax_model::Cpu;

    use super::{Counter, ROUNDS, compare_pair};
    use crate::cpus;

    /// A counter shared by all CPUs that each thread reads with a different offset.
    struct Skewed<'a>(&'a AtomicU64, u64);

    impl Counter for Skewed<'_> {
        fn read(&mut self) -> u64 {
            self.0.fetch_add(1, Ordering::SeqCst) + self.1
        }

        fn cpu(&mut self) -> Option<Cpu> {
            None
        }
    }

    #[test]
    fn offset_counters_are_distinguished_from_a_common_one() {
        let cpu = cpus::allowed().iter().next().unwrap();
        let count = AtomicU64::new(0);
        let one_time = compare_pair(cpu, cpu, || Skewed(&count, 0));
        assert!(one_time.comparisons <= ROUNDS);
        assert_eq!(one_time.backwards, 0);
        // The threads' offsets differ by more than the counter advances in a round.
        let offset = AtomicU64::new(0);
        let two_times = compare_pair(cpu, cpu, || {
            Skewed(&count, offset.fetch_add(1_000_000, Ordering::SeqCst))
        });
        assert_eq!(two_times.backwards, two_times.comparisons);
    }
}
