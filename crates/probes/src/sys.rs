//! The system calls and instructions that have no safe wrapper. All `unsafe` of this crate is here.
#![expect(
    unsafe_code,
    reason = "the CPU's counter and the scheduling calls have no safe wrapper"
)]

use nix::errno::Errno;
use ticktax_model::Nanos;

/// Gives up all capabilities of the calling thread, and the right to gain others.
pub(crate) fn give_up_capabilities() -> nix::Result<()> {
    /// The kernel's `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    /// Version 3: two words of each of three sets.
    const VERSION: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let none = [0_u32; 6];
    // SAFETY: the kernel reads the header and the six words, which outlive the call; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    Errno::result(result)?;
    nix::sys::prctl::set_no_new_privs()
}

/// The kernel's `struct sched_param`: the priority and nothing else.
///
/// The C libraries disagree about the size of theirs; the kernel reads this much of either.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Whether this architecture has a counter that [`read_counter`] reads in user space.
pub(crate) const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Reads the time-stamp counter, after everything that the program did before it.
///
/// `lfence` holds `rdtsc` back until earlier instructions are done, so two readings bracket the
/// code between them. `rdtscp` promises less for more time.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: `lfence` needs SSE2, which every x86-64 CPU has; it touches no memory.
    unsafe { std::arch::x86_64::_mm_lfence() };
    read_counter_unordered()
}

/// Reads the time-stamp counter, perhaps some nanoseconds before earlier instructions are done.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    // SAFETY: `rdtsc` is part of every x86-64 CPU, and Linux lets programs execute it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the virtual counter, after everything that the program did before it.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: the barrier waits for earlier instructions and touches no memory.
    unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
    read_counter_unordered()
}

/// Reads the virtual counter, perhaps some nanoseconds before earlier instructions are done.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    let count: u64;
    // SAFETY: Linux lets programs read CNTVCT_EL0, which touches no memory.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nostack, preserves_flags));
    };
    count
}

/// Stands in for a counter where there is none; [`HAS_COUNTER`] keeps it from being called.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter() -> u64 {
    0
}

/// Stands in for a counter where there is none; [`HAS_COUNTER`] keeps it from being called.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    0
}

/// The frequency that the counter itself declares, in Hz; `None` where it declares none.
#[cfg(target_arch = "aarch64")]
pub(crate) fn declared_frequency() -> Option<u64> {
    let hertz: u64;
    // SAFETY: Linux lets programs read CNTFRQ_EL0, which touches no memory.
    unsafe {
        std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    };
    (hertz > 0).then_some(hertz)
}

/// The frequency that the counter itself declares, in Hz; `None` where it declares none.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn declared_frequency() -> Option<u64> {
    None
}

/// What the scheduling calls take for the thread that makes them.
pub(crate) const THIS_THREAD: libc::pid_t = 0;

/// Sets the scheduling policy and real-time priority of a thread of this process.
///
/// The system call is made directly, because musl's `sched_setscheduler` always fails.
pub(crate) fn set_scheduler(
    tid: libc::pid_t,
    policy: libc::c_int,
    priority: u8,
) -> Result<(), Errno> {
    let param = SchedParam {
        priority: libc::c_int::from(priority),
    };
    // SAFETY: `param` has the layout that the kernel expects and outlives the call, which only
    // reads it.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const param) };
    Errno::result(result).map(drop)
}

/// What the kernel counts of a socket's memory (`SO_MEMINFO`): bytes that wait to be read, bytes that may, and
/// datagrams that it dropped.
pub(crate) fn socket_memory(socket: std::os::fd::BorrowedFd<'_>) -> Result<[u32; 3], Errno> {
    use std::os::fd::AsRawFd;

    // The kernel's SK_MEMINFO_RMEM_ALLOC, _RCVBUF and _DROPS, of nine words and perhaps more some day.
    let mut words = [0_u32; 9];
    let mut size: libc::socklen_t = 36;
    // SAFETY: the kernel writes at most `size` bytes to `words`, which has as many, and the size to `size`; both
    // outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    Errno::result(result)?;
    Ok([words[0], words[1], words[8]])
}

/// Gives the calling thread the nice value 19, which any thread may.
pub(crate) fn be_nice() {
    // SAFETY: the call takes three numbers and touches no memory.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Sleeps for at least this long by the C library's `nanosleep`, unless a signal comes.
pub(crate) fn nanosleep(time: Nanos) -> Result<(), Errno> {
    let time = time.0.max(0);
    // Not built field by field: the C libraries' structures differ in what else they hold.
    let request =
        *nix::sys::time::TimeSpec::new(time / 1_000_000_000, time % 1_000_000_000).as_ref();
    // SAFETY: `request` outlives the call, which only reads it; the second pointer may be null.
    let result = unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
    Errno::result(result).map(drop)
}

/// Sleeps for at least this many microseconds by the C library's `usleep`, unless a signal comes.
pub(crate) fn usleep(microseconds: u32) -> Result<(), Errno> {
    // SAFETY: the call takes a number and touches no memory of the caller's.
    let result = unsafe { libc::usleep(microseconds) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{HAS_COUNTER, THIS_THREAD, read_counter, set_scheduler};

    #[test]
    fn the_counter_counts() {
        let first = read_counter();
        let later = (0..1_000_000)
            .map(|_| read_counter())
            .find(|reading| *reading != first);
        assert_eq!(later.is_some(), HAS_COUNTER);
    }

    #[test]
    fn a_policy_that_does_not_exist_is_refused() {
        assert_eq!(set_scheduler(THIS_THREAD, 99, 0), Err(Errno::EINVAL));
    }
}
