//! The detail of a wait row: why a thread was off its CPU, and where in the kernel it waited.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Suffix of a wait's detail if the thread started to wait on one CPU and then ran on another.
pub const MOVED: &str = ", moved";

/// Starts the part of a wait's detail that describes where its lock was released.
const RELEASED: &str = ", released";

/// Starts the part of a wait's detail that names the lock.
const ON: &str = ", on ";

/// Name of the lock of a process's own address space in [`OffCpu::lock`].
pub const MMAP_LOCK: &str = "mmap_lock";

/// Stands in for the system call in an [`OffCpu`] if the thread entered the kernel because its user
/// code caused a page fault.
pub const PAGE_FAULT_ENTRY: &str = "page_fault";

/// Why a thread was off its CPU, as stored in the `detail` of wait rows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OffCpuReason {
    /// The thread was woken and waited for a CPU.
    Woken,
    /// Runnable, but preempted.
    Preempted,
    /// The thread was throttled because its cgroup had used up its CPU quota.
    Throttled,
    /// The thread was blocked in an interruptible sleep, for example on input, a timer or a futex.
    Sleeping,
    /// The thread was blocked until a disk responded.
    Disk,
    /// The thread was blocked in another uninterruptible sleep, usually on a kernel lock.
    Lock,
    /// The thread was stopped by a signal or a debugger. Older recordings also use this reason for
    /// frozen threads.
    Stopped,
    /// The thread was frozen by the freezer of a cgroup or of the system.
    Frozen,
    /// The thread had used up its own `SCHED_DEADLINE` budget, and its next period had not begun.
    Deadline,
    /// Unknown: the kernel did not report when the thread left its CPU, or it was already blocked
    /// when the recording started.
    Missed,
    /// The row is a marker without duration, after which the thread id belongs to a new thread.
    Reborn,
    /// The row describes the timer of a timed sleep, and overlaps the end of that sleep's row. It
    /// lasts from the time the thread had asked for until the thread was woken. Its self time is
    /// the part of this delay that the thread's timer slack allowed.
    Timer,
}

impl OffCpuReason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Woken,
        Self::Preempted,
        Self::Throttled,
        Self::Sleeping,
        Self::Disk,
        Self::Lock,
        Self::Stopped,
        Self::Frozen,
        Self::Deadline,
        Self::Missed,
        Self::Reborn,
        Self::Timer,
    ];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Woken => "woken",
            Self::Preempted => "preempted",
            Self::Throttled => "throttled",
            Self::Sleeping => "sleeping",
            Self::Disk => "disk",
            Self::Lock => "lock",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen",
            Self::Deadline => "deadline",
            Self::Missed => "missed",
            Self::Reborn => "reborn",
            Self::Timer => "timer",
        }
    }

    /// Returns whether a row with this reason is an interval of the thread's time, as opposed to
    /// additional information.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Reborn | Self::Timer)
    }

    /// Returns the reason whose [`OffCpuReason::name`] is `name`; `None` if no reason has this
    /// name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the reason in a wait row's detail, and whether the thread moved to another CPU;
    /// `None` if the detail does not name a known reason.
    pub fn from_detail(detail: &str) -> Option<(Self, bool)> {
        let off = OffCpu::parse(detail)?;
        Some((off.reason, off.moved))
    }
}

/// The parsed detail of a wait row. It has the form `REASON[ in SYSCALL][ at FUNCTION[<CALLER]][,
/// on LOCK][, released[ in SYSCALL][ at FUNCTION]][, moved]`, for example `lock in mmap at
/// rwsem_down_write_slowpath<vm_mmap_pgoff, released in mlock at __mm_populate`.
/// [`OffCpu::parse`] and `Display` are inverses of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffCpu<'a> {
    /// Why the thread was off its CPU.
    pub reason: OffCpuReason,
    /// System call in which the thread waited, without its prefix in the kernel, or
    /// [`PAGE_FAULT_ENTRY`]. `None` if it is unknown or if the thread was not in a system call.
    pub syscall: Option<&'a str>,
    /// Kernel function in which the thread waited, skipping functions of the scheduler, because
    /// every thread waits in those. `None` if the tracer did not see the thread's stack.
    pub function: Option<&'a str>,
    /// Caller of `function`, if `function` is a general one such as the slow path of a lock.
    pub caller: Option<&'a str>,
    /// Kernel lock that the thread waited for, in the form `KIND[:ACCESS][=SYMBOL]`, for example
    /// `mutex=rtnl_mutex` or `rwsem:read`. The kind is [`MMAP_LOCK`] for the lock of the thread's
    /// address space. `None` if the thread waited for no lock, or if the lock is unknown.
    pub lock: Option<&'a str>,
    /// System call in which the waker was when it ended a wait for a lock. `None` if it is unknown
    /// or if the waker was not in a system call.
    pub released_in: Option<&'a str>,
    /// Kernel function in which the waker was, skipping functions that release locks and wake
    /// threads. `None` if the tracer did not see the waker's stack.
    pub released_at: Option<&'a str>,
    /// Whether the thread then ran on a different CPU than before.
    pub moved: bool,
}

impl<'a> OffCpu<'a> {
    /// Creates a detail that consists of just a reason.
    pub const fn new(reason: OffCpuReason) -> Self {
        Self {
            reason,
            syscall: None,
            function: None,
            caller: None,
            lock: None,
            released_in: None,
            released_at: None,
            moved: false,
        }
    }

    /// Parses the detail of a wait row; `None` if it does not have the form above or its reason is
    /// unknown.
    pub fn parse(detail: &'a str) -> Option<Self> {
        let (words, moved) = match detail.strip_suffix(MOVED) {
            Some(words) => (words, true),
            None => (detail, false),
        };
        let (words, release) = match words.split_once(RELEASED) {
            Some((_, "")) => return None,
            Some((words, release)) => (words, release),
            None => (words, ""),
        };
        let (words, lock) = match words.split_once(ON) {
            Some((words, lock)) if is_name(lock) => (words, Some(lock)),
            Some(_) => return None,
            None => (words, None),
        };
        let (reason, place) = words.split_at(words.find(' ').unwrap_or(words.len()));
        let reason = OffCpuReason::from_name(reason)?;
        let (syscall, place) = in_and_at(place)?;
        let (released_in, released_at) = in_and_at(release)?;
        let (function, caller) = match place.and_then(|place| place.split_once('<')) {
            Some((function, caller)) if is_name(function) && is_name(caller) => {
                (Some(function), Some(caller))
            }
            Some(_) => return None,
            None => (place, None),
        };
        Some(Self {
            reason,
            syscall,
            function,
            caller,
            lock,
            released_in,
            released_at,
            moved,
        })
    }
}

/// Parses `[ in SYSCALL][ at FUNCTION]`.
fn in_and_at(text: &str) -> Option<(Option<&str>, Option<&str>)> {
    let mut words = text.split(' ').peekable();
    words.next_if_eq(&"")?;
    let mut after = |word: &str| match words.next_if_eq(&word) {
        Some(_) => words.next().filter(|name| is_name(name)).map(Some),
        None => Some(None),
    };
    let names = (after("in")?, after("at")?);
    words.next().is_none().then_some(names)
}

/// Returns whether `text` can be the name of a system call or function.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([' ', ','])
}

impl fmt::Display for OffCpu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.name())?;
        if let Some(syscall) = self.syscall {
            write!(f, " in {syscall}")?;
        }
        if let Some(function) = self.function {
            write!(f, " at {function}")?;
            if let Some(caller) = self.caller {
                write!(f, "<{caller}")?;
            }
        }
        if let Some(lock) = self.lock {
            write!(f, "{ON}{lock}")?;
        }
        if self.released_in.is_some() || self.released_at.is_some() {
            f.write_str(RELEASED)?;
        }
        if let Some(syscall) = self.released_in {
            write!(f, " in {syscall}")?;
        }
        if let Some(function) = self.released_at {
            write!(f, " at {function}")?;
        }
        f.write_str(if self.moved { MOVED } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MOVED, OffCpu, OffCpuReason};

    #[test]
    fn details_of_older_recordings_consist_of_a_reason() {
        for reason in OffCpuReason::ALL {
            let plain = OffCpu::new(reason);
            assert_eq!(OffCpu::parse(reason.name()), Some(plain));
            let detail = format!("{}{MOVED}", reason.name());
            let moved = OffCpu {
                moved: true,
                ..plain
            };
            assert_eq!(OffCpu::parse(&detail), Some(moved));
            assert_eq!(
                OffCpuReason::from_detail(&detail),
                Some((reason, true)),
                "{detail}"
            );
        }
    }

    #[test]
    fn a_lock_has_the_function_that_asked_for_it() {
        let detail = "lock in mmap at rwsem_down_write_slowpath<vm_mmap_pgoff, moved";
        let lock = OffCpu {
            syscall: Some("mmap"),
            function: Some("rwsem_down_write_slowpath"),
            caller: Some("vm_mmap_pgoff"),
            moved: true,
            ..OffCpu::new(OffCpuReason::Lock)
        };
        assert_eq!(OffCpu::parse(detail), Some(lock));
    }

    #[test]
    fn a_lock_has_the_function_that_released_it() {
        let detail = "lock in mmap at down_write<vm_mmap_pgoff, released in mlock at __mm_populate";
        let lock = OffCpu::parse(detail).unwrap();
        assert_eq!(lock.released_in, Some("mlock"));
        assert_eq!(lock.released_at, Some("__mm_populate"));
        let kernel_thread = OffCpu::parse("lock, released at wb_workfn, moved").unwrap();
        assert_eq!(kernel_thread.released_at, Some("wb_workfn"));
        assert!(kernel_thread.moved && kernel_thread.released_in.is_none());
    }

    #[test]
    fn a_lock_can_have_a_name() {
        let detail = "lock in ioctl at __mutex_lock<dev_ioctl, on mutex=rtnl_mutex, released at x";
        let lock = OffCpu::parse(detail).unwrap();
        assert_eq!(lock.lock, Some("mutex=rtnl_mutex"));
        assert_eq!(lock.released_at, Some("x"));
        assert_eq!(lock.to_string(), detail);
    }

    #[test]
    fn other_text_is_not_a_detail() {
        for detail in [
            "",
            "tick_nohz_handler",
            "lock in",
            "lock in mmap at ",
            "lock at <vm_mmap_pgoff",
            "lock at down_read<",
            "lock in mmap munmap",
            "lock at down_read in mmap",
            "waiting in mmap",
            "lock, released",
            "lock, on ",
            "lock, on a lock",
            "lock, released in",
            "lock, released by mlock",
            "lock  in mmap",
        ] {
            assert_eq!(OffCpu::parse(detail), None, "{detail}");
        }
    }

    fn a_name() -> impl Strategy<Value = String> {
        "(in|at|[a-zA-Z_][a-zA-Z0-9_.]{0,20})"
    }

    proptest! {
        #[test]
        fn details_round_trip(
            reason in proptest::sample::select(OffCpuReason::ALL.to_vec()),
            syscall in proptest::option::of(a_name()),
            function in proptest::option::of((a_name(), proptest::option::of(a_name()))),
            lock in proptest::option::of("(mutex|rwsem:read)(=[a-z_]{1,9})?"),
            released_in in proptest::option::of(a_name()),
            released_at in proptest::option::of(a_name()),
            moved: bool,
        ) {
            let off = OffCpu {
                reason,
                syscall: syscall.as_deref(),
                function: function.as_ref().map(|(function, _)| &**function),
                caller: function.as_ref().and_then(|(_, caller)| caller.as_deref()),
                lock: lock.as_deref(),
                released_in: released_in.as_deref(),
                released_at: released_at.as_deref(),
                moved,
            };
            let detail = off.to_string();
            prop_assert_eq!(OffCpu::parse(&detail), Some(off));
        }

        #[test]
        fn parsed_details_are_written_as_they_were(
            detail in "(lock|disk)( in [a-z]{0,3})?( at [a-z<]{0,5})?\
                       (, released( in [a-z]{0,3})?( at [a-z]{0,3})?)?(, moved)?",
        ) {
            if let Some(off) = OffCpu::parse(&detail) {
                prop_assert_eq!(off.to_string(), detail);
            }
        }
    }
}
