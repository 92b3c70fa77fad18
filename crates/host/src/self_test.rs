//! How a kernel counts a thread's time, told by what it does: for kernels that say so nowhere.
//!
//! A thread spends one half of each tick's length in user mode and the other in the kernel, always the
//! same halves. A kernel that measures shows about one half of its time as user time. One that samples
//! at the tick sees the thread in the same half each time, and shows all of it as that (`cputime_adjust`,
//! `kernel/sched/cputime.c`, scales samples to the time that was really used). The halves are shifted by
//! a quarter of a tick in a second batch, so that the tick does not fall between them in both.

use std::fs::File;
use std::io::Read;
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Ticks in each batch.
const TICKS: u32 = 16;
/// How far from one half the share of user time lies at least where it is sampled, and at most where
/// it is measured.
const APART: (f64, f64) = (0.35, 0.15);

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether times are sampled at the tick.
    pub(super) sampled: bool,
    /// From so many ticks.
    pub(super) ticks: u32,
}

/// Tries it, for 32 ticks. `None` where neither is certain: others had the CPU, or the clocks do not tell
/// the tick.
pub(super) fn run() -> Option<Verdict> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let tick = u64::try_from(tick.tv_nsec())
        .ok()
        .filter(|&tick| tick > 1_000)?;
    // A thread of its own, so that nothing else is in its times.
    let batch = |shift: u64| {
        let thread = thread::Builder::new().spawn(move || share_of_user(tick, shift));
        thread.ok()?.join().ok()?
    };
    judge(batch(0)?, batch(tick / 4)?)
}

/// By the share of user time in each batch.
fn judge(first: f64, second: f64) -> Option<Verdict> {
    let apart = [first, second].map(|share| (share - 0.5).abs());
    let far = apart[0].max(apart[1]);
    let sampled = match far {
        far if far >= APART.0 => true,
        far if far <= APART.1 => false,
        _ => return None,
    };
    Some(Verdict {
        sampled,
        ticks: 2 * TICKS,
    })
}

/// Halves of ticks in user mode, from `shift` ns behind each; the rest in the kernel. The share of user
/// time, as the kernel shows it.
fn share_of_user(tick: u64, shift: u64) -> Option<f64> {
    let mut zeros = File::open("/dev/zero").ok()?;
    let mut page = vec![0; 64 << 10];
    let times = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let micros = |time: TimeVal| time.num_microseconds() as f64;
        Some((micros(usage.user_time()), micros(usage.system_time())))
    };
    let began = times()?;
    let mut edge = next_edge()?;
    for _ in 0..TICKS {
        let (from, until) = (edge + shift, edge + shift + tick / 2);
        while now(ClockId::CLOCK_MONOTONIC)? < from {
            zeros.read_exact(&mut page).ok()?;
        }
        while now(ClockId::CLOCK_MONOTONIC)? < until {
            std::hint::spin_loop();
        }
        let end = edge + tick;
        while now(ClockId::CLOCK_MONOTONIC)? < end {
            zeros.read_exact(&mut page).ok()?;
        }
        edge = end;
    }
    let ended = times()?;
    let (user, system) = (ended.0 - began.0, ended.1 - began.1);
    (user + system > 0.0).then(|| user / (user + system))
}

/// When the tick comes next, on `CLOCK_MONOTONIC`.
fn next_edge() -> Option<u64> {
    let before = now(ClockId::CLOCK_MONOTONIC_COARSE)?;
    while now(ClockId::CLOCK_MONOTONIC_COARSE)? == before {
        std::hint::spin_loop();
    }
    now(ClockId::CLOCK_MONOTONIC)
}

fn now(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::{TICKS, Verdict, judge};

    #[test]
    fn halves_that_vanish_are_samples_and_halves_that_stay_are_not() {
        let told = |first, second| judge(first, second).map(|it| it.sampled);
        assert_eq!(told(0.02, 0.48), Some(true));
        assert_eq!(told(0.55, 0.99), Some(true));
        assert_eq!(told(0.47, 0.55), Some(false));
        assert_eq!(told(0.25, 0.4), None);
        let ticks = 2 * TICKS;
        assert_eq!(
            judge(0.5, 0.5),
            Some(Verdict {
                sampled: false,
                ticks
            })
        );
    }
}
