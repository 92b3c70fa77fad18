//! Words that recordings use for what the kernel does, where it matters which they are: writers
//! and readers take them from here.

/// The name of the local timer's interrupt.
pub const LOCAL_TIMER: &str = "local_timer";

/// The name of an interrupt that has no tracepoint, in which high-resolution timers ran: a
/// hypervisor's timer, in most cases the tick's.
pub const UNTRACED_TIMER: &str = "untraced_timer";

/// The name of the rows of [`Kind::Task`](crate::Kind::Task) whose thread is not known, because the
/// kernel did not report the context switch to it.
pub const UNREPORTED: &str = "unreported thread";

/// The name of what sums and counts put together, where a table has no room for more names.
pub const OTHERS: &str = "others";

/// The name of the softirq that runs timers of low resolution.
pub const TIMER_SOFTIRQ: &str = "TIMER";

/// The name of the softirq that takes packets from devices and hands them to sockets.
pub const RECEIVE_SOFTIRQ: &str = "NET_RX";

/// Whether the kernel thread `name` is one that softirqs are handed over to.
pub fn is_ksoftirqd(name: &str) -> bool {
    name.strip_prefix("ksoftirqd/")
        .is_some_and(|cpu| cpu.starts_with(|c: char| c.is_ascii_digit()))
}

/// What kernels call the tick's timer function: recent ones, and earlier ones.
pub const TICK_FUNCTIONS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// The timer function that ends a sleep.
pub const SLEEP_FUNCTION: &str = "hrtimer_wakeup";

/// The timer functions that give a cgroup with a CPU quota time again: each period, and what other CPUs
/// gave back.
pub const QUOTA_FUNCTIONS: [&str; 2] = ["sched_cfs_period_timer", "sched_cfs_slack_timer"];

/// The timer function that has the fair server of a CPU run ordinary threads before real-time ones.
pub const SERVER_FUNCTION: &str = "dl_task_timer";

/// The begin of the names of the kernel's workers, whose time is that of their work items.
const WORKER: &str = "kworker";

/// Whether the kernel thread `name` is a worker.
pub fn is_worker(name: &str) -> bool {
    name.starts_with(WORKER)
}

/// Whether the kernel thread `name` is a worker that stays on its CPU: `kworker/3:1`, and not
/// `kworker/u8:1`.
pub fn is_bound_worker(name: &str) -> bool {
    let pool = name
        .strip_prefix(WORKER)
        .and_then(|it| it.strip_prefix('/'));
    pool.is_some_and(|pool| pool.starts_with(|c: char| c.is_ascii_digit()))
}

/// What a thread's CPU does for it apart from running it: the detail of a row of
/// [`Kind::Task`](crate::Kind::Task).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskDetail {
    /// It serves a page fault.
    PageFault,
    /// It reclaims memory, for the machine or for a memory cgroup's limit.
    Reclaim,
}

impl TaskDetail {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::PageFault, Self::Reclaim];

    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page_fault",
            Self::Reclaim => "reclaim",
        }
    }

    /// What [`TaskDetail::name`] gives this word to; `None` for the others, such as a work item's
    /// function.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|detail| detail.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::{TaskDetail, is_bound_worker, is_worker};

    #[test]
    fn a_worker_is_known_by_its_name_and_its_pool() {
        let of = |name| (is_worker(name), is_bound_worker(name));
        assert_eq!(of("kworker/3:1H"), (true, true));
        assert_eq!(of("kworker/u8:1-events"), (true, false));
        assert_eq!(of("kworker"), (true, false));
        assert_eq!(of("ksoftirqd/3"), (false, false));
    }

    #[test]
    fn a_detail_reads_back_as_what_it_was_written_for() {
        for detail in TaskDetail::ALL {
            assert_eq!(TaskDetail::from_name(detail.name()), Some(detail));
        }
        assert_eq!(TaskDetail::from_name("vmstat_update"), None);
    }
}
