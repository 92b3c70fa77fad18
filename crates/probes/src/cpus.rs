//! Lists online and allowed CPUs, and pins threads to CPUs.

use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::{Cpu, CpuList};

use crate::ProbeError;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Returns the CPUs that are online.
///
/// # Errors
/// Returns [`ProbeError::Unreadable`] if `/sys` is not mounted.
pub fn online_cpus() -> Result<CpuList, ProbeError> {
    online_under(Path::new("/"))
}

/// Same as [`online_cpus`], but reads the kernel's `sys` file system in the directory `root`.
pub(crate) fn online_under(root: &Path) -> Result<CpuList, ProbeError> {
    let path = root.join("sys/devices/system/cpu/online");
    let unreadable = |why: String| ProbeError::Unreadable {
        path: path.display().to_string(),
        why,
    };
    let text =
        std::fs::read_to_string(&path).map_err(|error| unreadable(error.kind().to_string()))?;
    text.parse::<CpuList>()
        .map_err(|error| unreadable(error.to_string()))
}

/// Checks that `cpus` is not empty and contains only online CPUs.
pub(crate) fn require_online(cpus: &CpuList, online: &CpuList) -> Result<(), ProbeError> {
    if cpus.is_empty() {
        return Err(ProbeError::NoCpu {
            online: online.clone(),
        });
    }
    match cpus.iter().find(|cpu| !online.contains(*cpu)) {
        Some(cpu) => Err(ProbeError::NotOnline {
            cpu,
            online: online.clone(),
        }),
        None => Ok(()),
    }
}

/// Returns the CPUs that the calling thread may use, or an empty list if the kernel does not report
/// them.
pub fn allowed() -> CpuList {
    let Ok(set) = sched_getaffinity(THIS_THREAD) else {
        return CpuList::default();
    };
    (0..CpuSet::count())
        .filter(|number| set.is_set(*number) == Ok(true))
        .filter_map(|number| u32::try_from(number).ok())
        .map(Cpu)
        .collect()
}

/// Pins the calling thread to `cpu`. Fails for CPU 1024 and above, which the C library's fixed-size
/// CPU set cannot represent.
///
/// # Errors
/// Returns [`ProbeError::NotAllowed`] if the thread may not run on this CPU.
pub fn pin(cpu: Cpu) -> Result<(), ProbeError> {
    let mut set = CpuSet::new();
    set.set(cpu.index())
        .and_then(|()| sched_setaffinity(THIS_THREAD, &set))
        .map_err(|errno| ProbeError::NotAllowed {
            cpu,
            why: errno.desc(),
            allowed: allowed(),
        })
}

/// Returns the CPU on which the calling thread is running, or `None` if the kernel does not report
/// it. On x86-64, the vDSO answers this without a system call.
#[inline]
pub(crate) fn current() -> Option<Cpu> {
    sched_getcpu()
        .ok()
        .and_then(|number| u32::try_from(number).ok())
        .map(Cpu)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ticktax_model::Cpu;

    use super::{allowed, current, online_under, pin, require_online};

    #[test]
    fn the_error_for_an_unknown_cpu_lists_the_online_cpus() {
        let error = require_online(
            &[Cpu(0), Cpu(7)].into_iter().collect(),
            &"0-1".parse().unwrap(),
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "CPU 7 is not online: choose from 0-1"
        );
        let error = require_online(&"".parse().unwrap(), &"0-1".parse().unwrap());
        assert_eq!(
            error.unwrap_err().to_string(),
            "no CPU given: choose from 0-1"
        );
    }

    #[test]
    fn the_error_for_a_missing_file_contains_its_path() {
        let error = online_under(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read /nowhere/sys/devices/system/cpu/online ("),
            "{error}"
        );
    }

    #[test]
    fn a_pinned_thread_runs_on_its_cpu() {
        let cpu = allowed().iter().last().unwrap();
        let seen = std::thread::spawn(move || pin(cpu).map(|()| current()))
            .join()
            .unwrap();
        assert_eq!(seen, Ok(Some(cpu)));
    }

    #[test]
    fn a_cpu_outside_the_set_is_refused_with_a_reason() {
        let error = pin(Cpu(8000)).unwrap_err().to_string();
        assert!(
            error.contains("cannot pin a thread to CPU 8000 (Invalid argument)"),
            "{error}"
        );
    }
}
