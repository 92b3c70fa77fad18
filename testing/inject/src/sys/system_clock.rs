//! Changes of the system clock. Only guests should use them.

use nix::errno::Errno;
use ticktax_model::Nanos;

/// Steps the system clock by exactly this size (`ADJ_SETOFFSET`).
///
/// # Errors
/// Returns the kernel's error, for example without root.
pub fn step(size: Nanos) -> nix::Result<()> {
    const SECOND: i64 = 1_000_000_000;
    adjust(|state| {
        state.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
        state.time.tv_sec = size.0.div_euclid(SECOND);
        // With `ADJ_NANO`, this field is in ns.
        state.time.tv_usec = size.0.rem_euclid(SECOND);
    })
}

/// Tells the kernel that the system clock is synchronised, and sets the length of a tick, which is
/// 10,000 µs by default. A microsecond more makes the clock 100 ppm faster.
///
/// # Errors
/// Returns the kernel's error, for example without root.
pub fn synchronise(tick_us: i64) -> nix::Result<()> {
    adjust(|state| {
        state.modes = libc::ADJ_STATUS | libc::ADJ_TICK | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
        state.tick = tick_us;
    })
}

fn adjust(change: impl FnOnce(&mut libc::timex)) -> nix::Result<()> {
    // SAFETY: a `timex` consists of integers, and zero is a valid integer.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    change(&mut state);
    // SAFETY: the call reads and writes only this structure, which outlives it.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    Errno::result(result).map(drop)
}
