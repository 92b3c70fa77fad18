//! Names that recordings use for kernel activities. The analysis looks for these exact words, so
//! the writers and the readers of recordings both take them from here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the local timer interrupt.
pub const LOCAL_TIMER: &str = "local_timer";

/// Name of an interrupt that has no tracepoint but ran high-resolution timers. It belongs to a
/// timer of the hypervisor and usually runs the tick.
pub const UNTRACED_TIMER: &str = "untraced_timer";

/// Name in [`Kind::Task`](crate::Kind::Task) rows whose thread is unknown because the kernel did
/// not report the switch to it.
pub const UNREPORTED: &str = "unreported thread";

/// Name of the account for all sources that did not fit into the table of sums.
pub const OTHERS: &str = "others";

/// Name of the softirq that runs timer-wheel timers.
pub const TIMER_SOFTIRQ: &str = "TIMER";

/// Name of the softirq that passes received packets from devices to sockets.
pub const RECEIVE_SOFTIRQ: &str = "NET_RX";

/// Returns whether `name` belongs to a `ksoftirqd` thread, which runs softirqs that the kernel
/// deferred.
pub fn is_ksoftirqd(name: &str) -> bool {
    name.strip_prefix("ksoftirqd/")
        .is_some_and(|cpu| cpu.starts_with(|c: char| c.is_ascii_digit()))
}

/// Names of the tick's timer function: the first in recent kernels, the second in earlier ones.
pub const TICK_FUNCTIONS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// Timer function that wakes a thread from a timed sleep.
pub const SLEEP_FUNCTION: &str = "hrtimer_wakeup";

/// Timer functions that refill a cgroup's CPU quota. The first runs at the start of each quota
/// period, and the second distributes unused quota that other CPUs returned.
pub const QUOTA_FUNCTIONS: [&str; 2] = ["sched_cfs_period_timer", "sched_cfs_slack_timer"];

/// Timer function that activates a CPU's fair server, so that ordinary threads run ahead of
/// real-time ones.
pub const SERVER_FUNCTION: &str = "dl_task_timer";

/// Name prefix of kernel worker threads, whose time is charged to the work items they run.
const WORKER: &str = "kworker";

/// Returns whether `name` belongs to a kernel worker thread.
pub fn is_worker(name: &str) -> bool {
    name.starts_with(WORKER)
}

/// Returns whether `name` belongs to a worker thread that is bound to one CPU, such as
/// `kworker/3:1` but not `kworker/u8:1`.
pub fn is_bound_worker(name: &str) -> bool {
    let pool = name
        .strip_prefix(WORKER)
        .and_then(|rest| rest.strip_prefix('/'));
    pool.is_some_and(|pool| pool.starts_with(|c: char| c.is_ascii_digit()))
}

/// Kernel work that a thread does in addition to running its own code, stored as the detail of a
/// [`Kind::Task`](crate::Kind::Task) row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskDetail {
    /// Handling a page fault.
    PageFault,
    /// Reclaiming memory because the machine is short of it or a memory cgroup reached its limit.
    Reclaim,
}

impl TaskDetail {
    /// All details.
    pub const ALL: [Self; 2] = [Self::PageFault, Self::Reclaim];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page_fault",
            Self::Reclaim => "reclaim",
        }
    }

    /// Returns the detail whose [`TaskDetail::name`] is `name`. The result is `None` if no detail
    /// is called that, for example because `name` is the function of a work item.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|detail| detail.name() == name)
    }
}

/// Context that a late timer interrupt interrupted, stored as the name of a
/// [`Kind::Late`](crate::Kind::Late) row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interrupted {
    /// A program in user mode, where interrupts are always enabled.
    User,
    /// The idle loop.
    Idle,
    /// The kernel, or unknown.
    Kernel,
}

impl Interrupted {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::User, Self::Idle, Self::Kernel];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Idle => "idle",
            Self::Kernel => "kernel",
        }
    }

    /// Returns the variant whose [`Interrupted::name`] is `name`. For any other name, returns
    /// [`Interrupted::Kernel`], which proves nothing.
    pub fn from_name(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|context| context.name() == name);
        named.unwrap_or(Self::Kernel)
    }
}

/// Prefix of the detail of a [`Kind::Task`](crate::Kind::Task) row for time spent in one system
/// call, whose name follows.
pub const IN_CALL: &str = "in ";

/// Returns the system call that a [`Kind::Task`](crate::Kind::Task) row with this `detail` belongs
/// to; `None` if the detail does not name one.
pub fn system_call(detail: &str) -> Option<&str> {
    detail.strip_prefix(IN_CALL)
}

#[cfg(test)]
mod tests {
    use super::{TaskDetail, is_bound_worker, is_worker};

    #[test]
    fn worker_names_tell_bound_from_unbound_workers() {
        let classify = |name| (is_worker(name), is_bound_worker(name));
        assert_eq!(classify("kworker/3:1H"), (true, true));
        assert_eq!(classify("kworker/u8:1-events"), (true, false));
        assert_eq!(classify("kworker"), (true, false));
        assert_eq!(classify("ksoftirqd/3"), (false, false));
    }

    #[test]
    fn detail_names_round_trip() {
        for detail in TaskDetail::ALL {
            assert_eq!(TaskDetail::from_name(detail.name()), Some(detail));
        }
        assert_eq!(TaskDetail::from_name("vmstat_update"), None);
    }
}
