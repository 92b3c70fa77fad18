//! The clocks: the recording's, and those of threads and processes.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use ticktax_model::Nanos;

/// `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The CPU time that the calling thread has used.
pub(crate) fn thread_cpu() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time that a process has used, if it still is.
pub(crate) fn process_cpu(pid: Pid) -> Option<Nanos> {
    let clock = ClockId::pid_cpu_clock_id(pid).ok()?;
    clock_gettime(clock).ok().map(nanos)
}

/// Spins until `length` of wall time has passed since `start`; says when it ended.
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
    // These two clocks exist on every Linux; a reading of 0 would show at once.
    clock_gettime(clock).map(nanos).unwrap_or_default()
}

fn nanos(time: nix::sys::time::TimeSpec) -> Nanos {
    Nanos::from_secs(time.tv_sec()) + Nanos(time.tv_nsec())
}
