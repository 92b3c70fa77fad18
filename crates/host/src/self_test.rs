//! Tests how the kernel accounts a thread's CPU time, for kernels that don't reveal it in any other
//! way.
//!
//! A thread spends one half of each tick period in user mode and the other half in the kernel,
//! always the same halves. A kernel that measures times reports about half of the thread's CPU time
//! as user time. A kernel that samples at the tick always finds the thread in the same half, so it
//! reports all of the CPU time as either user or system time. (`cputime_adjust` in
//! `kernel/sched/cputime.c` scales the samples to the measured run time.) A second batch shifts the
//! halves by a quarter of a tick period, so that the tick cannot hit the boundary between the
//! halves in both batches.

use std::fs::File;
use std::io::Read;
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Number of ticks in each batch.
const TICKS: u32 = 16;
/// Limits for how far the user share is from one half. At a distance of at least the first value,
/// times are sampled. At a distance of at most the second, they are measured. In between, the
/// result is unclear.
const APART: (f64, f64) = (0.35, 0.15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether the kernel samples CPU times at the tick, rather than measuring them.
    pub(super) sampled: bool,
    pub(super) ticks: u32,
}

/// Runs the self-test, which takes 32 ticks. Returns `None` if the result is unclear because other
/// threads were running, or if the clocks don't reveal the tick period.
pub(super) fn run() -> Option<Verdict> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let tick = u64::try_from(tick.tv_nsec())
        .ok()
        .filter(|&tick| tick > 1_000)?;
    // Each batch has its own thread, so that the thread's CPU times contain only the batch.
    let batch = |shift: u64| {
        let thread = thread::Builder::new().spawn(move || share_of_user(tick, shift));
        thread.ok()?.join().ok()?
    };
    judge(batch(0)?, batch(tick / 4)?)
}

/// Draws a conclusion from the user shares in the two batches. Returns `None` if they are
/// inconclusive.
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

/// Spends half of each tick period in user mode, starting `shift` ns after the tick, and the other
/// half in the kernel. Returns the user share of the CPU time that the kernel reports.
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

/// Waits for the next tick and returns its time on `CLOCK_MONOTONIC`.
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
    fn a_lopsided_share_means_sampling() {
        let sampled = |first, second| judge(first, second).map(|verdict| verdict.sampled);
        assert_eq!(sampled(0.02, 0.48), Some(true));
        assert_eq!(sampled(0.55, 0.99), Some(true));
        assert_eq!(sampled(0.47, 0.55), Some(false));
        assert_eq!(sampled(0.25, 0.4), None);
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
