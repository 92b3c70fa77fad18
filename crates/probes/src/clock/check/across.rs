//! Whether all CPUs' counters show one time: readings on one CPU, enclosed by two on another.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::Builder;

use ticktax_model::{Cpu, CpuList, Nanos};

use super::super::{Counter, Hardware, now};
use crate::cpus;

/// How many readings are compared for each pair of CPUs.
const ROUNDS: u32 = 64;

/// How long one pair may take. A pair that does not get its CPUs compares fewer readings.
const LIMIT: Nanos = Nanos::from_millis(20);

/// The turn that tells the other side that nothing more comes.
const OVER: u32 = u32::MAX;

/// What the comparison found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) comparisons: u32,
    pub(super) backwards: u32,
}

/// Two threads take turns: odd turns are the second one's, even turns the first one's.
struct Relay {
    turn: AtomicU32,
    reading: AtomicU64,
    deadline: Nanos,
}

impl Relay {
    /// Waits for a turn. `false` when the other side is gone or the time is up.
    fn wait_for(&self, turn: u32) -> bool {
        for spins in 1_u32.. {
            match self.turn.load(Ordering::Acquire) {
                now if now == turn => return true,
                OVER => return false,
                _ if spins % 1024 != 0 => std::hint::spin_loop(),
                _ if now() > self.deadline => return false,
                // On a crowded machine both threads may need the same CPU's time.
                _ => std::thread::yield_now(),
            }
        }
        false
    }

    /// The side that encloses.
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
        self.turn.store(OVER, Ordering::Release);
        steps
    }

    /// The side that is enclosed.
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

/// Compares the first of `cpus` with each of the others. A CPU that cannot be used is passed over.
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
    let give_up = || relay.turn.store(OVER, Ordering::Release);
    let answer = || match cpus::pin(other) {
        Ok(()) => relay.answer(&mut counter()),
        Err(_) => give_up(),
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
            give_up();
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

    /// One count for all CPUs, seen from this one with an offset.
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
    fn one_time_is_told_from_two() {
        let cpu = cpus::allowed().iter().next().unwrap();
        let count = AtomicU64::new(0);
        let one_time = compare_pair(cpu, cpu, || Skewed(&count, 0));
        assert!(one_time.comparisons <= ROUNDS);
        assert_eq!(one_time.backwards, 0);
        // Both threads ask for a counter; each one's offset differs by more than a round trip.
        let offset = AtomicU64::new(0);
        let two_times = compare_pair(cpu, cpu, || {
            Skewed(&count, offset.fetch_add(1_000_000, Ordering::SeqCst))
        });
        assert_eq!(two_times.backwards, two_times.comparisons);
    }
}
