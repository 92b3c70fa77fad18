//! Runs several guests at the same time. Under icount, each keeps one of the host's CPUs fully
//! busy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use crate::qemu::Clock;

impl Clock {
    /// Returns how many guests with this clock may run at the same time on a host with `cpus` CPUs.
    /// Guests that use the host's clock run alone, because they would slow each other down.
    pub fn guests_at_once(self, cpus: usize) -> usize {
        match self {
            Self::Icount { .. } => cpus,
            Self::Tcg | Self::Kvm => 1,
        }
    }
}

/// Calls `process` for each item in `work`, for up to `jobs` items at the same time. Returns the
/// results in the order of `work`. After the first error, no further item starts. From then on, the
/// closure passed to `process` returns `true`, so that the running items can stop.
///
/// # Errors
/// Returns the first error that `process` returned.
pub fn in_turns<T: Sync, R: Send, E: Send>(
    work: &[T],
    jobs: usize,
    process: impl Fn(&T, &dyn Fn() -> bool) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let failed = OnceLock::new();
    let is_over = || failed.get().is_some();
    let turns = || {
        let mut done = Vec::new();
        while !is_over() {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = work.get(place) else { break };
            match process(item, &is_over) {
                Ok(result) => done.push((place, result)),
                // Keep only the first error, because it made the other items stop.
                Err(error) => drop(failed.set(Mutex::new(error))),
            }
        }
        done
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs.min(work.len()))
            // If a thread cannot be created, the existing threads process all items.
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, turns).ok())
            .collect();
        let mut done = turns();
        for thread in threads {
            match thread.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    if let Some(error) = failed.into_inner() {
        return Err(error.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::in_turns;

    #[test]
    fn results_are_ordered_whichever_item_finishes_first() {
        let work: Vec<u64> = (0..20).collect();
        for jobs in [1, 2, 7, 50] {
            let (now, max) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let result = in_turns(&work, jobs, |&item, is_over| {
                max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Make later items finish sooner than earlier ones.
                for _ in 0..(20 - item) * 50 {
                    std::thread::yield_now();
                }
                now.fetch_sub(1, Ordering::SeqCst);
                assert!(!is_over());
                Ok::<u64, ()>(item * item)
            });
            assert_eq!(result, Ok(work.iter().map(|item| item * item).collect()));
            assert!(max.into_inner() <= jobs, "more than {jobs} at once");
        }
        assert_eq!(
            in_turns(&work[..0], 2, |_, _| Err::<(), ()>(())),
            Ok(vec![])
        );
    }

    #[test]
    fn the_first_failure_is_returned_and_ends_the_others() {
        let begun = AtomicUsize::new(0);
        let result = in_turns(&[5, 0, 1, 2, 3, 4], 2, |&item, is_over| {
            begun.fetch_add(1, Ordering::SeqCst);
            // The first item runs until it is cancelled, and the second one fails.
            while item == 5 && !is_over() {
                std::thread::yield_now();
            }
            Err::<(), _>(item)
        });
        assert_eq!(result, Err(0));
        assert_eq!(begun.into_inner(), 2, "no item starts after a failure");
    }
}
