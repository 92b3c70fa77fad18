//! Four functions that take known shares of a thread's CPU time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::time::{ClockId, clock_gettime};
use ticktax_model::Nanos;

/// Upper limit for the length of a function's code, in bytes.
pub const LONGEST: u64 = 512;

/// Defines a function that only computes. It calls nothing, so that samples find its own address.
macro_rules! work {
    ($name:ident, $a:literal, $b:literal, $c:literal) => {
        #[inline(never)]
        fn $name(rounds: u64, seed: u64) -> u64 {
            let (mut state, mut round) = (seed, 0);
            while round < rounds {
                state ^= state << $a;
                state ^= state >> $b;
                state ^= state << $c;
                round += 1;
            }
            state
        }
    };
}

work!(ten, 13, 7, 17);
work!(twenty, 7, 9, 13);
work!(thirty, 9, 5, 21);
work!(forty, 11, 31, 18);

/// A function. Its arguments are the number of rounds and a seed.
pub type Work = fn(u64, u64) -> u64;

/// The functions, with their names and planned shares in percent.
pub const FUNCTIONS: [(&str, Work, u64); 4] = [
    ("ten", ten, 10),
    ("twenty", twenty, 20),
    ("thirty", thirty, 30),
    ("forty", forty, 40),
];

/// Runs the functions in turn until `stop` is set. Returns the CPU time of each.
pub fn run_functions(stop: &AtomicBool) -> [Nanos; 4] {
    let mut times = [Nanos::ZERO; 4];
    let mut seed = 1;
    while !stop.load(Ordering::Relaxed) {
        for (time, (_, work, share)) in times.iter_mut().zip(FUNCTIONS) {
            let begin = thread_time();
            seed = black_box(work(black_box(share * 10_000), seed | 1));
            *time += thread_time() - begin;
        }
    }
    times
}

fn thread_time() -> Nanos {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}
