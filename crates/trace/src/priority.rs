//! Real-time priority for threads in this process.

use std::thread::JoinHandle;

use nix::unistd::gettid;
use ticktax_model::Nanos;
use ticktax_model::victim::DeadlineBudget;

use crate::sys;

/// Children of a thread with this flag start with an ordinary policy.
const RESET_ON_FORK: i32 = libc::SCHED_RESET_ON_FORK;

/// Number of the policy `SCHED_DEADLINE`.
const DEADLINE: u32 = 6;

/// Returns the budget of thread `tid` under `SCHED_DEADLINE`, or `None` if the thread has a
/// different policy or has exited.
pub fn deadline_budget(tid: i32) -> Option<DeadlineBudget> {
    let attributes = sys::attributes(tid).ok()?;
    let nanos = |value: u64| Nanos(i64::try_from(value).unwrap_or(i64::MAX));
    (attributes.policy == DEADLINE).then(|| DeadlineBudget {
        runtime: nanos(attributes.runtime),
        deadline: nanos(attributes.deadline),
        period: nanos(attributes.period),
    })
}

/// A thread's ordinary scheduling policy, so that the thread can be raised to a real-time priority
/// and restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPriority {
    tid: i32,
    policy: i32,
}

impl ThreadPriority {
    /// The highest real-time priority.
    pub const HIGHEST: u8 = 99;

    /// Returns the calling thread's policy. Returns `None` if it is not an ordinary one
    /// (`SCHED_OTHER` or `SCHED_BATCH`), because the user then chose it on purpose.
    pub fn current() -> Option<Self> {
        let tid = gettid().as_raw();
        let policy = sys::scheduler(tid).ok()? & !RESET_ON_FORK;
        matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH).then_some(Self { tid, policy })
    }

    /// Returns the ID of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Sets the thread's policy to `SCHED_FIFO` with `priority`, from 1 to 99. Its children do not
    /// inherit this.
    ///
    /// # Errors
    /// Returns the kernel's reason if it refuses. Besides missing rights, a control group with an
    /// `rt_runtime_us` of 0 is a frequent reason.
    pub fn raise(&self, priority: u8) -> Result<(), &'static str> {
        let policy = libc::SCHED_FIFO | RESET_ON_FORK;
        sys::set_scheduler(self.tid, policy, priority).map_err(nix::errno::Errno::desc)
    }

    /// Restores the thread's policy. Its nice value never changed.
    pub fn restore(&self) {
        // Without CAP_SYS_NICE, the flag can no longer be removed.
        let _ = sys::set_scheduler(self.tid, self.policy, 0)
            .or_else(|_| sys::set_scheduler(self.tid, self.policy | RESET_ON_FORK, 0));
    }

    /// Sets the policy of a thread that this process started to `SCHED_FIFO` with `priority`, even
    /// if the thread has not run yet. Returns whether the kernel allowed it.
    pub fn raise_started<T>(thread: &JoinHandle<T>, priority: u8) -> bool {
        sys::set_real_time(thread, priority)
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::gettid;

    use super::{RESET_ON_FORK, ThreadPriority};
    use crate::sys;

    #[test]
    fn a_raised_thread_gets_its_policy_back() {
        let own = ThreadPriority::current().unwrap();
        // Not every caller may raise its priority.
        if own.raise(1).is_ok() {
            assert_eq!(
                sys::scheduler(own.tid()),
                Ok(libc::SCHED_FIFO | RESET_ON_FORK)
            );
            // A thread with a real-time policy is left alone.
            assert_eq!(ThreadPriority::current(), None);
            let child = std::thread::spawn(ThreadPriority::current).join();
            assert!(child.unwrap().is_some(), "a child inherited the priority");
        }
        own.restore();
        assert_eq!(ThreadPriority::current(), Some(own));
    }

    #[test]
    fn an_ordinary_thread_has_no_deadline_budget() {
        assert_eq!(super::deadline_budget(gettid().as_raw()), None);
        assert_eq!(super::deadline_budget(i32::MAX), None);
    }

    #[test]
    fn a_thread_that_waits_is_raised_from_outside() {
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            waits.recv().ok();
            sys::scheduler(0)
        });
        let raised = ThreadPriority::raise_started(&thread, 1);
        go.send(()).unwrap();
        let policy = thread.join().unwrap().unwrap();
        assert_eq!(policy == libc::SCHED_FIFO, raised);
    }
}
