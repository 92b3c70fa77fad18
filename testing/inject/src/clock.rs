//! Clocks: `CLOCK_MONOTONIC`, which recordings use, and the CPU clocks of threads and processes.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use ticktax_model::Nanos;

/// Returns the current time on `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of a process, or `None` if the process no longer exists.
pub(crate) fn process_cpu(pid: Pid) -> Option<Nanos> {
    let clock = ClockId::pid_cpu_clock_id(pid).ok()?;
    clock_gettime(clock).ok().map(nanos)
}

/// Spins until `length` has passed since `start`. Returns the time at which it stopped.
pub(crate) fn spin(start: Nanos, length: Nanos) -> Nanos {
    loop {
        let time = now();
        if time - start >= length {
            return time;
        }
        std::hint::spin_loop();
    }
}

fn read(clock: ClockId) -> Nanos {
    // Both clocks exist on every Linux system. If reading one failed anyway, the resulting 0 would
    // be noticed immediately.
    clock_gettime(clock).map(nanos).unwrap_or_default()
}

fn nanos(time: nix::sys::time::TimeSpec) -> Nanos {
    Nanos::from_secs(time.tv_sec()) + Nanos(time.tv_nsec())
}
