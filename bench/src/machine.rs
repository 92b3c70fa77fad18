//! Describes the machine on which the benchmarks run, and sets CPU affinity.

use std::fs;
use std::io;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_host::Proc;
use ticktax_model::Cpu;

/// Pins the calling thread to `cpu`. Threads and processes that it starts inherit the affinity.
pub(crate) fn pin(cpu: Cpu) -> io::Result<()> {
    pin_to_all(&[cpu])
}

/// Pins the calling thread to `cpus`. Threads and processes that it starts inherit the affinity.
pub(crate) fn pin_to_all(cpus: &[Cpu]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu.index())?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

/// Describes the machine in one line.
pub(crate) fn line() -> String {
    let machine = Proc::default().machine();
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    format!(
        "{}, CPUs {}, Linux {}; load average at the start: {}",
        model.as_deref().unwrap_or("unknown CPU"),
        machine.online,
        machine.kernel,
        load_average(),
    )
}

/// Returns the load averages over 1, 5 and 15 minutes.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}
