//! What the benchmarks share with their tests: tables, words typed, and other people's tools in a guest.

use std::convert::Infallible;

pub mod guest;
pub mod live;
pub mod peers;
pub mod table;
pub mod told_apart;
pub mod typed;

/// Does all of `work` on all CPUs, and returns what came of each in its order.
pub fn on_all_cpus<T: Sync, R: Send>(work: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let Ok(done) = ticktax_lab::in_turns(work, threads, |one, _| Ok::<_, Infallible>(of(one)));
    done
}
