//! Fast time sources: the CPU's counter, or `CLOCK_MONOTONIC` instead.

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

/// The measuring loops' interface to a counter, which lets tests supply their own readings.
pub(crate) trait Counter {
    /// The count, in ticks.
    fn read(&mut self) -> u64;

    /// CPU that the thread runs on, if the system reports it.
    fn cpu(&mut self) -> Option<Cpu>;
}

/// The CPU's own counter, read after all earlier instructions of the thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hardware;

/// The CPU's own counter, read without waiting for earlier instructions.
///
/// Loops that compare one reading with the next use it. They do not need the ordering, and waiting
/// for it would double the loop's time.
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
