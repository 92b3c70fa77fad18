//! System calls and CPU instructions that have no safe wrapper. All of this crate's `unsafe` code
//! is here and in `memory`, except for that in `sampler`.
#![expect(
    unsafe_code,
    reason = "the CPU's counter and the scheduling calls have no safe wrapper"
)]

pub(crate) mod memory;

use nix::errno::Errno;
use ticktax_model::Nanos;

/// Drops all capabilities of the calling thread and sets `no_new_privs`.
pub(crate) fn give_up_capabilities() -> nix::Result<()> {
    /// The kernel's `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    /// Version 3 of the interface, which has three capability sets of two words each.
    const VERSION: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let none = [0_u32; 6];
    // SAFETY: the kernel only reads the header and the six words, which outlive the call. A PID of
    // 0 stands for the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    Errno::result(result)?;
    nix::sys::prctl::set_no_new_privs()
}

/// The kernel's `struct sched_param`, which contains only the priority.
///
/// C libraries disagree about the size of this structure, but the kernel reads only these bytes.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Whether [`read_counter`] works in user space on this architecture.
pub(crate) const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Reads the time-stamp counter after all earlier instructions have completed.
///
/// `lfence` delays `rdtsc` until then, so that two readings enclose the code between them. `rdtscp`
/// would cost more and guarantee less.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: `lfence` requires SSE2, which all x86-64 CPUs have, and accesses no memory.
    unsafe { std::arch::x86_64::_mm_lfence() };
    read_counter_unordered()
}

/// Reads the time-stamp counter, possibly a few ns before earlier instructions have completed.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    // SAFETY: all x86-64 CPUs have `rdtsc`, and Linux permits it in user space.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the virtual counter after all earlier instructions have completed.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: the barrier waits for earlier instructions and accesses no memory.
    unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
    read_counter_unordered()
}

/// Reads the virtual counter, possibly a few ns before earlier instructions have completed.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    let count: u64;
    // SAFETY: Linux permits reading CNTVCT_EL0 in user space, and the instruction accesses no
    // memory.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nostack, preserves_flags));
    };
    count
}

/// Placeholder for architectures without a counter. Never called, because [`HAS_COUNTER`] is false.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter() -> u64 {
    0
}

/// Placeholder for architectures without a counter. Never called, because [`HAS_COUNTER`] is false.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn read_counter_unordered() -> u64 {
    0
}

/// Returns the counter's frequency in Hz from the register CNTFRQ_EL0, or `None` if the register is
/// 0.
#[cfg(target_arch = "aarch64")]
pub(crate) fn declared_frequency() -> Option<u64> {
    let hertz: u64;
    // SAFETY: Linux permits reading CNTFRQ_EL0 in user space, and the instruction accesses no
    // memory.
    unsafe {
        std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    };
    (hertz > 0).then_some(hertz)
}

/// Returns `None`, because other architectures have no register for the counter's frequency.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn declared_frequency() -> Option<u64> {
    None
}

pub(crate) const THIS_THREAD: libc::pid_t = 0;

/// Sets the scheduling policy and the real-time priority of a thread in this process.
///
/// Makes the system call directly, because musl's `sched_setscheduler` always fails.
pub(crate) fn set_scheduler(
    tid: libc::pid_t,
    policy: libc::c_int,
    priority: u8,
) -> Result<(), Errno> {
    let param = SchedParam {
        priority: libc::c_int::from(priority),
    };
    // SAFETY: `param` has the layout that the kernel expects and outlives the call. The kernel only
    // reads it.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const param) };
    Errno::result(result).map(drop)
}

/// Sets the calling thread's nice value to 19. This requires no privilege.
pub(crate) fn be_nice() {
    // SAFETY: the call takes three integers and accesses no memory.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Sleeps for at least `time` with the C library's `nanosleep`. A signal can end the sleep early.
pub(crate) fn nanosleep(time: Nanos) -> Result<(), Errno> {
    let time = time.0.max(0);
    // `TimeSpec` builds the structure, because its padding depends on the C library.
    let request =
        *nix::sys::time::TimeSpec::new(time / 1_000_000_000, time % 1_000_000_000).as_ref();
    // SAFETY: `request` outlives the call, which only reads it. The second pointer may be null.
    let result = unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
    Errno::result(result).map(drop)
}

/// Sleeps for at least `microseconds` with the C library's `usleep`. A signal can end the sleep
/// early.
pub(crate) fn usleep(microseconds: u32) -> Result<(), Errno> {
    // SAFETY: the call takes an integer and accesses no memory of the caller.
    let result = unsafe { libc::usleep(microseconds) };
    Errno::result(result).map(drop)
}

/// Reads the state of the system clock. Returns it with the state of leap seconds (`TIME_…`).
///
/// # Errors
/// Returns the kernel's error, for example if a sandbox forbids the call.
pub(crate) fn adjtimex() -> Result<(libc::timex, libc::c_int), Errno> {
    // SAFETY: a `timex` consists of integers, and zero is a valid integer.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: without any mode, the call only fills in the structure, which outlives it.
    let leap = unsafe { libc::adjtimex(&raw mut state) };
    Errno::result(leap).map(|leap| (state, leap))
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
