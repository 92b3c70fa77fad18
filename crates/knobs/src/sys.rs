//! Scheduling system calls that have no safe wrapper. All of this crate's `unsafe` code is here.
#![expect(
    unsafe_code,
    reason = "sched_setattr, sched_getattr and setpriority have no safe wrapper"
)]

use nix::errno::Errno;

/// First version of the kernel's `struct sched_attr`. All kernels since Linux 3.14 accept it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedAttr {
    pub(crate) size: u32,
    /// Scheduling policy, as a `SCHED_*` number.
    pub(crate) policy: u32,
    /// Flags: `SCHED_FLAG_*`.
    pub(crate) flags: u64,
    /// Nice value of tasks with a normal policy, from -20 to 19.
    pub(crate) nice: i32,
    /// Priority of real-time tasks, from 1 to 99.
    pub(crate) priority: u32,
    /// Runtime of deadline tasks, in ns. For normal tasks, this is the slice (since Linux 6.12).
    pub(crate) runtime: u64,
    /// Deadline of deadline tasks, in ns.
    pub(crate) deadline: u64,
    /// Period of deadline tasks, in ns.
    pub(crate) period: u64,
}

/// Size of [`SchedAttr`] in bytes (`SCHED_ATTR_SIZE_VER0`).
const SIZE: u32 = 48;
const _: () = assert!(size_of::<SchedAttr>() == SIZE as usize);

/// Returns the scheduling attributes of task `tid`, or of the calling thread if `tid` is 0.
pub(crate) fn sched_getattr(tid: i32) -> Result<SchedAttr, Errno> {
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel writes at most `SIZE` bytes to `attr`, which is that large and outlives
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, SIZE, 0_u32) };
    Errno::result(result).map(|_| attr)
}

pub(crate) fn sched_setattr(tid: i32, attr: SchedAttr) -> Result<(), Errno> {
    let attr = SchedAttr { size: SIZE, ..attr };
    // SAFETY: `attr` has the layout and size that it declares, and outlives the call. The kernel
    // only reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0_u32) };
    Errno::result(result).map(drop)
}

pub(crate) fn set_nice(tid: i32, nice: i32) -> Result<(), Errno> {
    // Use the system call directly, because C libraries disagree about the types of `setpriority`.
    // SAFETY: the call takes three integers and accesses no memory.
    let result = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, nice) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{SchedAttr, sched_getattr, sched_setattr, set_nice};

    #[test]
    fn a_threads_attributes_can_be_read_and_set() {
        let attr = sched_getattr(0).unwrap();
        assert_eq!(attr.size, super::SIZE);
        set_nice(0, attr.nice).unwrap();
        assert_eq!(sched_getattr(0).unwrap().nice, attr.nice);
    }

    #[test]
    fn a_missing_task_is_reported() {
        // PIDs are below 2^22 on every kernel.
        let missing = 1 << 23;
        assert_eq!(sched_getattr(missing), Err(Errno::ESRCH));
        assert_eq!(set_nice(missing, 0), Err(Errno::ESRCH));
        let attr = SchedAttr::default();
        assert_eq!(sched_setattr(missing, attr), Err(Errno::ESRCH));
    }
}
