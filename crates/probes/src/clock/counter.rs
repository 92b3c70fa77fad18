//! What can be read fast and often: the CPU's counter, or `CLOCK_MONOTONIC` in its place.

use ticktax_model::Cpu;
use ticktax_model::clock::CounterSource;

use crate::{cpus, sys};

/// The counter that this architecture offers.
pub(crate) const NATIVE: CounterSource = if !sys::HAS_COUNTER {
    CounterSource::Monotonic
} else if cfg!(target_arch = "x86_64") {
    CounterSource::Tsc
} else {
    CounterSource::Cntvct
};

/// A counter as the measuring loops see it, so that tests can feed them readings of their own.
pub(crate) trait Counter {
    /// The count, in ticks.
    fn read(&mut self) -> u64;

    /// The CPU that the thread runs on, if the system tells.
    fn cpu(&mut self) -> Option<Cpu>;
}

/// The CPU's own counter, read after everything that the thread did before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hardware;

/// The CPU's own counter, read without waiting for earlier instructions.
///
/// For a loop that compares one reading with the next: order adds nothing there, and the wait for
/// it would double the loop's time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastHardware;

impl Counter for FastHardware {
    #[inline]
    fn read(&mut self) -> u64 {
        sys::read_counter_unordered()
    }

    #[inline]
    fn cpu(&mut self) -> Option<Cpu> {
        cpus::current()
    }
}

impl Counter for Hardware {
    #[inline]
    fn read(&mut self) -> u64 {
        sys::read_counter()
    }

    #[inline]
    fn cpu(&mut self) -> Option<Cpu> {
        cpus::current()
    }
}

/// `CLOCK_MONOTONIC`, read as a counter of nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Monotonic;

impl Counter for Monotonic {
    #[inline]
    fn read(&mut self) -> u64 {
        super::now().0.unsigned_abs()
    }

    #[inline]
    fn cpu(&mut self) -> Option<Cpu> {
        cpus::current()
    }
}
