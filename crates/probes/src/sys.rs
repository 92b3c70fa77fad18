//! System calls and instructions without a safe wrapper. All `unsafe` of this crate is here.
#![expect(
    unsafe_code,
    reason = "the CPU's counter and the scheduling calls have no safe wrapper"
)]

use nix::errno::Errno;
use ticktax_model::Nanos;

/// Drops all capabilities of the calling thread, and sets `no_new_privs`.
pub(crate) fn give_up_capabilities() -> nix::Result<()> {
    /// The kernel's `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    /// Version 3: three sets of two words each.
    const VERSION: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let none = [0_u32; 6];
    // SAFETY: the kernel only reads the header and the six words, which outlive the call. A pid of
    // 0 means the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    Errno::result(result)?;
    nix::sys::prctl::set_no_new_privs()
}

/// The kernel's `struct sched_param`, which holds only the priority.
///
/// The C libraries' own structures differ in size. The kernel reads only these bytes of either.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Whether [`read_counter`] works in user space on this architecture.
pub(crate) const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Reads the time-stamp counter after all earlier instructions have completed.
///
/// `lfence` holds `rdtsc` back until then, so two readings bracket the code between them. `rdtscp`
/// costs more and guarantees less.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: `lfence` needs SSE2, which every x86-64 CPU has; it touches no memory.
    unsafe { std::arch::x86_64::_mm_lfence() };
    read_counter_unordered()
}

/// Reads the time-stamp counter, possibly some nanoseconds before earlier instructions complete.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    // SAFETY: `rdtsc` is part of every x86-64 CPU, and Linux lets programs execute it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the virtual counter after all earlier instructions have completed.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: the barrier waits for earlier instructions and touches no memory.
    unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
    read_counter_unordered()
}

/// Reads the virtual counter, possibly some nanoseconds before earlier instructions complete.
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

/// Placeholder for architectures without a counter; never called, because of [`HAS_COUNTER`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter() -> u64 {
    0
}

/// Placeholder for architectures without a counter; never called, because of [`HAS_COUNTER`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    0
}

/// Frequency that the counter declares in CNTFRQ_EL0, in Hz; `None` if it reads 0.
#[cfg(target_arch = "aarch64")]
pub(crate) fn declared_frequency() -> Option<u64> {
    let hertz: u64;
    // SAFETY: Linux lets programs read CNTFRQ_EL0, which touches no memory.
    unsafe {
        std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    };
    (hertz > 0).then_some(hertz)
}

/// Counters of other architectures do not declare their frequency.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn declared_frequency() -> Option<u64> {
    None
}

/// Thread id by which scheduling calls mean the calling thread.
pub(crate) const THIS_THREAD: libc::pid_t = 0;

/// Sets the scheduling policy and real-time priority of a thread of this process.
///
/// This is a direct system call because musl's `sched_setscheduler` always fails.
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

/// Reads a socket's memory counters (`SO_MEMINFO`): unread bytes, the limit on unread bytes, and
/// datagrams that the kernel dropped.
pub(crate) fn socket_memory(socket: std::os::fd::BorrowedFd<'_>) -> Result<[u32; 3], Errno> {
    use std::os::fd::AsRawFd;

    // The words used are SK_MEMINFO_RMEM_ALLOC, _RCVBUF and _DROPS. The kernel has nine, and may
    // get more.
    let mut words = [0_u32; 9];
    let mut size: libc::socklen_t = 36;
    // SAFETY: the kernel writes at most `size` bytes to `words`, which has that many, and the size
    // to `size`. Both outlive the call.
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

/// Sets the calling thread's nice value to 19, which needs no privilege.
pub(crate) fn be_nice() {
    // SAFETY: the call takes three numbers and touches no memory.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Sleeps for at least `time` with the C library's `nanosleep`. A signal ends the sleep early.
pub(crate) fn nanosleep(time: Nanos) -> Result<(), Errno> {
    let time = time.0.max(0);
    // `TimeSpec` builds it because the C libraries' structures differ in their padding fields.
    let request =
        *nix::sys::time::TimeSpec::new(time / 1_000_000_000, time % 1_000_000_000).as_ref();
    // SAFETY: `request` outlives the call, which only reads it; the second pointer may be null.
    let result = unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
    Errno::result(result).map(drop)
}

/// Sleeps for at least `microseconds` with the C library's `usleep`. A signal ends the sleep early.
pub(crate) fn usleep(microseconds: u32) -> Result<(), Errno> {
    // SAFETY: the call takes a number and touches no memory of the caller.
    let result = unsafe { libc::usleep(microseconds) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{HAS_COUNTER, THIS_THREAD, read_counter, set_scheduler};

    #[test]
    fn the_counter_advances() {
        let first = read_counter();
        let later = (0..1_000_000)
            .map(|_| read_counter())
            .find(|reading| *reading != first);
        assert_eq!(later.is_some(), HAS_COUNTER);
    }

    #[test]
    fn an_unknown_policy_is_refused() {
        assert_eq!(set_scheduler(THIS_THREAD, 99, 0), Err(Errno::EINVAL));
    }
}
