//! The set of CPUs that a task may run on.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::CpuList;

use crate::error::Trouble;
use crate::system::System;

pub(super) fn read(system: &System, tid: i32) -> Result<String, Trouble> {
    let text = super::file::read(system, &format!("proc/{tid}/status"))?;
    let mut lines = text.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| list.trim().to_owned())
        .ok_or_else(|| Trouble::new(format!("/proc/{tid}/status does not list its CPUs")))
}

pub(super) fn write(tid: i32, value: &str) -> Result<(), Trouble> {
    let cpus: CpuList = value
        .parse()
        .map_err(|_| Trouble::new(format!("`{value}` is not a list of CPUs")))?;
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        let added = set.set(cpu.index());
        added.map_err(|_| {
            Trouble::new(format!(
                "CPU {cpu} is out of range: the system call supports {} CPUs",
                CpuSet::count()
            ))
        })?;
    }
    sched_setaffinity(Pid::from_raw(tid), &set).map_err(Trouble::of_call)
}
