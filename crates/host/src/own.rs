//! Resources used by this process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use ticktax_model::Nanos;

/// Returns the CPU time that all threads of this process have used so far, including threads that
/// have exited.
pub fn own_process_cpu_time() -> Nanos {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

/// Returns the CPU time that the calling thread has used so far.
pub fn own_thread_cpu_time() -> Nanos {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

/// Returns the CPU time of all children that this process has waited for, including the children's
/// own children.
pub fn children_cpu_time() -> Nanos {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(Nanos::ZERO, |usage| {
        let time = usage.user_time() + usage.system_time();
        Nanos::from_micros(time.num_microseconds())
    })
}

/// Returns the peak memory use of this process, in bytes.
pub fn own_peak_memory() -> u64 {
    let kibibytes = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    u64::try_from(kibibytes).unwrap_or(0) * 1024
}
