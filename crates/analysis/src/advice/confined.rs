//! Advice for a program that its cpuset keeps on busy CPUs while other CPUs are idle.

use ticktax_model::advice::Advice;
use ticktax_model::statement::{Class, CpuAccounts, Statement};
use ticktax_model::victim::VictimHeader;
use ticktax_model::{Cpu, CpuList, Nanos};

/// A CPU counts as idle if it was idle for at least this share of the time.
const IDLE: f64 = 0.5;
/// A CPU counts as busy if it was idle for at most this share of the time.
const BUSY: f64 = 0.1;

/// Returns advice to allow the program more CPUs. `waited` is the time it spent waiting for a CPU.
/// Returns `None` unless all CPUs in its cpuset were busy and another CPU was idle.
pub(super) fn advise(
    statement: &Statement,
    watched: Option<&VictimHeader>,
    waited: Nanos,
) -> Option<(Nanos, Advice)> {
    let settings = watched?.group_settings.as_deref()?;
    let (cpus, file) = (settings.cpus.as_ref()?, settings.cpus_file.as_ref()?);
    let apart = statement.machine.configured.set_apart();
    let idle = |cpu: &CpuAccounts| cpu.time_of(Class::Idle).share_of(cpu.elapsed);
    let (own, others): (Vec<&CpuAccounts>, Vec<&CpuAccounts>) = statement
        .cpus
        .iter()
        .partition(|accounts| cpus.contains(accounts.cpu));
    if own.is_empty() || own.iter().any(|cpu| idle(cpu) > BUSY) {
        return None;
    }
    let free = others
        .into_iter()
        .filter(|accounts| idle(accounts) >= IDLE && !apart.contains(accounts.cpu));
    let free: Vec<&CpuAccounts> = free.collect();
    let least = free.iter().map(|cpu| idle(cpu)).reduce(f64::min)?;
    let idle_cpus: CpuList = free.iter().map(|accounts| accounts.cpu).collect();
    let all: Vec<Cpu> = cpus.iter().chain(idle_cpus.iter()).collect();
    let advice = Advice::ConfinedToCpus {
        file: file.clone(),
        cpus: cpus.clone(),
        proposed_cpus: all.into_iter().collect(),
        idle_cpus,
        idle_share: least,
        time: waited,
    };
    Some((waited, advice))
}
