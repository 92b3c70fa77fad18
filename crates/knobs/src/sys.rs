//! The scheduling calls that have no safe wrapper. All `unsafe` of this crate is here.
#![expect(
    unsafe_code,
    reason = "sched_setattr, sched_getattr and setpriority have no safe wrapper"
)]

use nix::errno::Errno;

/// The kernel's `struct sched_attr` in its first size, which every kernel since 3.14 reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedAttr {
    pub(crate) size: u32,
    /// A `SCHED_*` number.
    pub(crate) policy: u32,
    /// `SCHED_FLAG_*`.
    pub(crate) flags: u64,
    /// Of ordinary tasks, -20 to 19.
    pub(crate) nice: i32,
    /// Of real-time tasks, 1 to 99.
    pub(crate) priority: u32,
    /// Of deadline tasks; of ordinary ones the slice, since Linux 6.12. ns.
    pub(crate) runtime: u64,
    /// Of deadline tasks, ns.
    pub(crate) deadline: u64,
    /// Of deadline tasks, ns.
    pub(crate) period: u64,
}

/// The bytes of [`SchedAttr`]: `SCHED_ATTR_SIZE_VER0`.
const SIZE: u32 = 48;
const _: () = assert!(size_of::<SchedAttr>() == SIZE as usize);

/// How a task is scheduled; 0 is the thread that asks.
pub(crate) fn sched_getattr(tid: i32) -> Result<SchedAttr, Errno> {
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel writes at most `SIZE` bytes, which `attr` has, and `attr` outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, SIZE, 0_u32) };
    Errno::result(result).map(|_| attr)
}

/// Sets how a task is scheduled.
pub(crate) fn sched_setattr(tid: i32, attr: SchedAttr) -> Result<(), Errno> {
    let attr = SchedAttr { size: SIZE, ..attr };
    // SAFETY: `attr` has the layout and the size that it declares, and outlives the call, which only
    // reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0_u32) };
    Errno::result(result).map(drop)
}

/// Sets the nice value of a task.
pub(crate) fn set_nice(tid: i32, nice: i32) -> Result<(), Errno> {
    // Made directly: the C libraries disagree about the types of `setpriority`.
    // SAFETY: the call takes three numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, nice) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{SchedAttr, sched_getattr, sched_setattr, set_nice};

    #[test]
    fn a_thread_can_be_asked_and_set_to_what_it_is() {
        let attr = sched_getattr(0).unwrap();
        assert_eq!(attr.size, super::SIZE);
        set_nice(0, attr.nice).unwrap();
        assert_eq!(sched_getattr(0).unwrap().nice, attr.nice);
    }

    #[test]
    fn a_task_that_is_not_there_is_no_task() {
        // Larger than any kernel's highest PID.
        let nobody = 1 << 23;
        assert_eq!(sched_getattr(nobody), Err(Errno::ESRCH));
        assert_eq!(set_nice(nobody, 0), Err(Errno::ESRCH));
        let attr = SchedAttr::default();
        assert_eq!(sched_setattr(nobody, attr), Err(Errno::ESRCH));
    }
}
