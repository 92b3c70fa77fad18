//! A hash of all simulated events.

use ticktax_model::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TraceEvent {
    Switch = 1,
    Wake = 2,
    Interrupt = 3,
    Packet = 4,
    Done = 5,
}

/// A hash of every switch, wake-up and interrupt, including its time and CPU. Simulations with
/// equal hashes had the same events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceHash(u64);

impl TraceHash {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn note(&mut self, at: Nanos, event: TraceEvent, cpu: usize, what: u32) {
        let place = (cpu as u64) << 40 | u64::from(what) << 8 | event as u64;
        // Multiply by an odd constant, then fold the high half into the low half.
        let mixed = (self.0 ^ at.0.cast_unsigned()).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mixed = (mixed ^ (mixed >> 32) ^ place).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = mixed ^ (mixed >> 29);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
