//! Fast time sources: the CPU's counter or, as a substitute, `CLOCK_MONOTONIC`.

use ticktax_model::Cpu;
use ticktax_model::clock::CounterSource;

use crate::{cpus, sys};

/// The counter that CPUs of this architecture have.
pub(crate) const NATIVE: CounterSource = if !sys::HAS_COUNTER {
    CounterSource::Monotonic
} else if cfg!(target_arch = "x86_64") {
    CounterSource::Tsc
} else {
    CounterSource::Cntvct
};

/// The counter that a measuring loop reads. Tests replace it with a scripted one.
pub(crate) trait Counter {
    /// Reads the counter, in ticks.
    fn read(&mut self) -> u64;

    /// Returns the CPU on which the thread is running, or `None` if the system does not report it.
    fn cpu(&mut self) -> Option<Cpu>;
}

/// The CPU's counter, read after all earlier instructions have completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hardware;

/// The CPU's counter, read without waiting for earlier instructions to complete.
///
/// Used by loops that compare consecutive readings. They don't need the ordering, which would
/// double the time per iteration.
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

/// `CLOCK_MONOTONIC` as a counter that counts nanoseconds.
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
