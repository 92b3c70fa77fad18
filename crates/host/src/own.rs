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

/// Resources used by the children that this process has waited for, and by their own children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildrenUsage {
    /// CPU time in user mode. The kernel splits the CPU time by samples at timer ticks.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Page faults.
    pub faults: u64,
    /// Voluntary context switches: a thread went to sleep.
    pub voluntary: u64,
    /// Involuntary context switches: a thread was preempted.
    pub involuntary: u64,
}

impl ChildrenUsage {
    /// Returns the usage so far.
    pub fn now() -> Self {
        let nanos = |time: nix::sys::time::TimeVal| Nanos::from_micros(time.num_microseconds());
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        getrusage(UsageWho::RUSAGE_CHILDREN).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user: nanos(usage.user_time()),
                system: nanos(usage.system_time()),
                faults: count(usage.minor_page_faults()) + count(usage.major_page_faults()),
                voluntary: count(usage.voluntary_context_switches()),
                involuntary: count(usage.involuntary_context_switches()),
            },
        )
    }

    /// Returns the usage since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            faults: self.faults.saturating_sub(earlier.faults),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// Returns the peak memory use of this process, in bytes.
pub fn own_peak_memory() -> u64 {
    let kibibytes = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    u64::try_from(kibibytes).unwrap_or(0) * 1024
}
