//! Properties of the kernel's tick that matter to a paced loop.

use ticktax_model::machine::Machine;
use ticktax_model::{Cpu, CpuList};

use crate::accounting::sampled;

/// Returns whether this kernel samples its machine-wide CPU figures at ticks, or `None` if that is
/// unknown.
pub fn sampled_at_tick(machine: &Machine) -> Option<bool> {
    let all = |cpus: &CpuList| cpus.iter().all(|cpu| sampled(machine, cpu) == Some(true));
    Some(sampled(machine, Cpu(0))? && all(&machine.online))
}
