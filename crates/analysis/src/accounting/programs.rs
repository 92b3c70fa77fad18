//! Compares the counters with the traced time for each program.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::accounting::ProgramCheck;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Cpu, CpuList, Nanos};

use super::check::{Case, ticks};
use super::sampled;
use super::samples::Charge;

/// Returns the checks of all programs, longest time first. A program is identified by its process
/// ID, because a process can change its name, and `/proc` reports one total for all its names.
pub(super) fn programs(
    case: &Case<'_>,
    accounts: &[Account],
    unwatched: &CpuList,
) -> Vec<ProgramCheck> {
    let mut table = ProgramTable {
        names: &case.names,
        programs: BTreeMap::new(),
    };
    if case.header.level == Level::Kernel {
        for account in accounts
            .iter()
            .filter(|account| account.class == Class::Program)
        {
            if let Some(pid) = account.pid {
                let check = table.entry(pid, &account.name);
                *check.ran.get_or_insert_default() += account.time;
            }
        }
    }
    if case.check.has_spans(case.header) {
        charges(case, &mut table);
    }
    if unwatched.is_empty() {
        shown(case, &mut table);
    }
    let weight = |check: &ProgramCheck| {
        let times = [check.on_cpu, check.ran, check.shown, check.sampled];
        times.into_iter().flatten().max().unwrap_or_default()
    };
    let mut programs: Vec<ProgramCheck> = table.programs.into_values().collect();
    programs.retain(|check| weight(check) > Nanos::ZERO);
    programs.sort_by_key(|check| Reverse(weight(check)));
    programs
}

struct ProgramTable<'a> {
    names: &'a BTreeMap<i32, String>,
    programs: BTreeMap<i32, ProgramCheck>,
}

impl ProgramTable<'_> {
    fn entry(&mut self, pid: i32, name: &str) -> &mut ProgramCheck {
        self.programs.entry(pid).or_insert_with(|| ProgramCheck {
            name: self.names.get(&pid).map_or(name, String::as_str).to_owned(),
            pid,
            ran: None,
            on_cpu: None,
            shown: None,
            sampled: None,
            deviations: None,
        })
    }
}

fn charges(case: &Case<'_>, table: &mut ProgramTable<'_>) {
    // Samples by process ID, taken only from CPUs whose columns are sampled.
    let mut sampled_there: BTreeMap<i32, Charge> = BTreeMap::new();
    let mut any = false;
    for (number, cpu) in (0u32..).zip(&case.check.cpus) {
        let is_sampled = sampled(&case.header.machine, Cpu(number)) == Some(true);
        any |= is_sampled;
        for (pid, charge) in cpu.programs() {
            *table.entry(pid, "?").on_cpu.get_or_insert_default() += charge.on_cpu;
            if is_sampled {
                sampled_there.entry(pid).or_default().add(charge);
            }
        }
    }
    let Some((by, tick)) = case.samples.filter(|_| any) else {
        return;
    };
    for check in table.programs.values_mut() {
        let charge = sampled_there.get(&check.pid).copied().unwrap_or_default();
        let on_cpu = check.on_cpu.unwrap_or_default();
        // On all other CPUs, the kernel measures time exactly.
        check.sampled = Some(ticks(charge.found(by), tick) + (on_cpu - charge.on_cpu));
        check.deviations = Some(charge.deviations(by, tick));
    }
}

/// Adds the times from `/proc/PID/stat`, ignoring ticktax and kernel threads.
fn shown(case: &Case<'_>, table: &mut ProgramTable<'_>) {
    for (&pid, after) in &case.header.after.programs {
        let before = case.header.before.programs.get(&pid);
        let time = after.time - before.map_or(Nanos::ZERO, |before| before.time);
        if !after.ticktax_or_kernel {
            table.entry(pid, &after.name).shown = Some(time);
        }
    }
}
