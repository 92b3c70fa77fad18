//! Guests side by side: a guest under icount takes one CPU of the host, whatever it does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use crate::qemu::Clock;

impl Clock {
    /// How many guests run at once on a host of so many CPUs: one whose time is the host's would be
    /// slowed down by others.
    pub fn guests_at_once(self, cpus: usize) -> usize {
        match self {
            Self::Icount { .. } => cpus,
            Self::Tcg | Self::Kvm => 1,
        }
    }
}

/// Does all of `work`, so many at once, and returns what came of each in its order. What fails first
/// is told; the others are told by their second argument that it is over, and then no more begin.
///
/// # Errors
/// The first of `of`.
pub fn in_turns<T: Sync, R: Send, E: Send>(
    work: &[T],
    jobs: usize,
    of: impl Fn(&T, &dyn Fn() -> bool) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let failed = OnceLock::new();
    let is_over = || failed.get().is_some();
    let turns = || {
        let mut done = Vec::new();
        while !is_over() {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = work.get(place) else { break };
            match of(one, &is_over) {
                Ok(result) => done.push((place, result)),
                // Only the first: the others were ended because of it.
                Err(error) => drop(failed.set(Mutex::new(error))),
            }
        }
        done
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs.min(work.len()))
            // Fewer threads do the same work, only later.
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
    fn results_come_in_order_whoever_is_first() {
        let work: Vec<u64> = (0..20).collect();
        for jobs in [1, 2, 7, 50] {
            let (now, max) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let told = in_turns(&work, jobs, |&one, is_over| {
                max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The later ones take less time.
                for _ in 0..(20 - one) * 50 {
                    std::thread::yield_now();
                }
                now.fetch_sub(1, Ordering::SeqCst);
                assert!(!is_over());
                Ok::<u64, ()>(one * one)
            });
            assert_eq!(told, Ok(work.iter().map(|one| one * one).collect()));
            assert!(max.into_inner() <= jobs, "more than {jobs} at once");
        }
        assert_eq!(
            in_turns(&work[..0], 2, |_, _| Err::<(), ()>(())),
            Ok(vec![])
        );
    }

    #[test]
    fn the_first_failure_ends_the_others_and_is_told() {
        let begun = AtomicUsize::new(0);
        let told = in_turns(&[5, 0, 1, 2, 3, 4], 2, |&one, is_over| {
            begun.fetch_add(1, Ordering::SeqCst);
            // The first goes on until it is ended; the second fails.
            while one == 5 && !is_over() {
                std::thread::yield_now();
            }
            Err::<(), _>(one)
        });
        assert_eq!(told, Err(0));
        assert_eq!(begun.into_inner(), 2, "none begins after a failure");
    }
}
