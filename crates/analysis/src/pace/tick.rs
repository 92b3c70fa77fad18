//! What of a machine's tick matters to a paced loop.

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::accounting::sampled;

/// A frame is overshot from here on: one tick of this kernel. Where its frequency is not known, it
/// is taken for the longest, and the second says so.
pub fn tick(machine: &Machine) -> (Nanos, Option<Limitation>) {
    const SLOWEST: Nanos = Nanos::from_millis(10);
    match machine.hz_configured.filter(|&hz| hz > 0) {
        Some(hz) => (Nanos(1_000_000_000 / i64::from(hz)), None),
        None => (
            SLOWEST,
            Some(Limitation::TickLengthUnknown { assumed: SLOWEST }),
        ),
    }
}

/// Whether this kernel's machine-wide figures are sampled at the tick.
pub fn sampled_at_tick(machine: &Machine) -> Option<bool> {
    let all = |cpus: &CpuList| cpus.iter().all(|cpu| sampled(machine, cpu) == Some(true));
    Some(sampled(machine, Cpu(0))? && all(&machine.online))
}
