//! What this process itself used.

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use ticktax_model::Nanos;

/// CPU time of this process so far, all threads together, children left out.
pub fn own_cpu_time() -> Nanos {
    let length = |time: TimeVal| Nanos(time.tv_sec() * 1_000_000_000 + time.tv_usec() * 1_000);
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(Nanos::ZERO, |usage| length(usage.user_time()) + length(usage.system_time()))
}

/// The most memory that this process held, in bytes.
pub fn own_peak_memory() -> u64 {
    let kibibytes = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    u64::try_from(kibibytes).unwrap_or(0) * 1024
}

/// CPU time of thread `tid` of this process so far; `None` once it has ended, or on kernels
/// without `/proc/PID/task/TID/schedstat`.
pub fn thread_cpu_time(tid: i32) -> Option<Nanos> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    Some(Nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
}
