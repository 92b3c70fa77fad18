//! CPU affinity of threads.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::{Cpu, CpuList};

use crate::error::InjectError;

/// Means the calling thread in scheduler system calls.
pub(crate) const SELF: Pid = Pid::from_raw(0);

/// Returns the CPUs on which the calling thread may run.
pub(crate) fn allowed_cpus() -> Result<CpuList, InjectError> {
    let set = sched_getaffinity(SELF).map_err(|e| {
        InjectError::system("ask which CPUs are allowed", e, "allow sched_getaffinity")
    })?;
    let count = u32::try_from(CpuSet::count()).unwrap_or(u32::MAX);
    Ok((0..count)
        .map(Cpu)
        .filter(|cpu| set.is_set(cpu.index()).unwrap_or(false))
        .collect())
}

/// Returns an error if threads of this process are not allowed to run on `cpu`.
pub(crate) fn check(cpu: Cpu) -> Result<(), InjectError> {
    let allowed = allowed_cpus()?;
    if allowed.contains(cpu) {
        Ok(())
    } else {
        Err(InjectError::NoSuchCpu { cpu, allowed })
    }
}

/// Returns a different CPU, from which `cpu` can be disturbed. Returns an error if this process is
/// not allowed to run on any other CPU.
pub(crate) fn other_than(cpu: Cpu, kind: &'static str) -> Result<Cpu, InjectError> {
    let other = allowed_cpus()?.iter().find(|other| *other != cpu);
    other.ok_or(InjectError::NeedsSecondCpu { kind, cpu })
}

/// Returns a CPU set that contains only `cpu`.
pub(crate) fn only(cpu: Cpu) -> Result<CpuSet, InjectError> {
    let mut set = CpuSet::new();
    set.set(cpu.index())
        .map_err(|e| InjectError::system(format!("name CPU {cpu}"), e, "choose one below 1024"))?;
    Ok(set)
}

pub(crate) fn pin(thread: Pid, cpu: Cpu) -> Result<(), InjectError> {
    sched_setaffinity(thread, &only(cpu)?).map_err(|e| {
        InjectError::system(
            format!("keep a thread to CPU {cpu}"),
            e,
            "choose a CPU that is online and in the process's cpuset",
        )
    })
}
