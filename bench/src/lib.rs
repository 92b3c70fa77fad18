//! Code shared by the benchmarks and their tests. Prints tables, reads numbers from the command
//! line, and runs third-party tools in a guest.

use std::convert::Infallible;

pub mod guest;
pub mod live;
pub mod peers;
pub mod table;
pub mod told_apart;
pub mod typed;

/// Applies `of` to each item in `work`, spread over all CPUs. Returns the results in the order of
/// the items.
pub fn on_all_cpus<T: Sync, R: Send>(work: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let Ok(done) = ticktax_lab::in_turns(work, threads, |one, _| Ok::<_, Infallible>(of(one)));
    done
}
