//! Finds CPUs that are already fully loaded, where a probe would take time from programs.
//!
//! A probe at the lowest priority normally takes only time that no program wants. Autogroup
//! scheduling is the exception: it divides CPU time between sessions first, so a priority counts
//! only within its session. The probe would then get half of a CPU that it shares with another
//! session's program.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::{CpuList, Nanos};
use ticktax_probes::clock::now;

/// Duration of the measurement. The kernel counts idle time in steps of 10 ms.
const LOOK: Duration = Duration::from_millis(200);
/// Idle share below which a CPU is full.
const SPARE: f64 = 0.1;

/// Returns the full CPUs among `cpus`, if a probe of this process would get a share of them.
/// Takes [`LOOK`] unless autogroups are off.
pub(crate) fn full_cpus(proc: &Proc, cpus: &CpuList) -> CpuList {
    if !proc.shares_by_session(nix::unistd::getpid().as_raw()) {
        return CpuList::default();
    }
    let (before, begin) = (proc.idle_times(), now());
    thread::sleep(LOOK);
    full(&before, &proc.idle_times(), now() - begin, cpus)
}

/// The CPUs among `cpus` that idled for less than [`SPARE`] of the `time` between two readings. A
/// CPU without readings is not full.
fn full(
    before: &BTreeMap<u32, Nanos>,
    after: &BTreeMap<u32, Nanos>,
    time: Nanos,
    cpus: &CpuList,
) -> CpuList {
    let idle_time = |cpu: u32| Some(*after.get(&cpu)? - *before.get(&cpu)?);
    let is_full = |cpu: u32| idle_time(cpu).is_some_and(|idle| idle.share_of(time) < SPARE);
    cpus.iter().filter(|cpu| is_full(cpu.0)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ticktax_model::Nanos;

    use super::full;

    #[test]
    fn a_cpu_that_hardly_idles_is_full() {
        let times = |idle: [i64; 3]| -> BTreeMap<u32, Nanos> {
            (0..).zip(idle.map(Nanos::from_millis)).collect()
        };
        let cpus = "0-3".parse().unwrap();
        let full = full(
            &times([500, 40, 700]),
            &times([510, 240, 730]),
            Nanos::from_millis(200),
            &cpus,
        );
        assert_eq!(full.to_string(), "0");
    }
}
