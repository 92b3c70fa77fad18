//! `ticktax pace`: a paced loop of its own, somebody else's, or many side by side.

mod own;
mod process;
mod sweep;

use std::process::ExitCode;

use nix::time::{ClockId, clock_gettime};
use ticktax_analysis::accounting::sampled;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceStatement;
use ticktax_model::{Cpu, CpuList, Nanos};
use ticktax_probes::ProbeError;
use ticktax_probes::pace::PaceSettings;

use crate::arguments::{PaceArguments, ProcessId};
use crate::failure::Failure;
use crate::terminal::{self, Terminal};

/// Runs the verb.
pub(crate) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    // Before anything is run: a file that cannot be made should not cost a minute's wait.
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    match (typed.pid, &typed.sweep) {
        (Some(ProcessId(pid)), _) => {
            let statement = process::watch(pid, typed, terminal)?;
            print(&statement, typed, terminal)?;
        }
        (None, Some(lists)) => {
            let statement = sweep::compare(lists, typed, terminal)?;
            terminal.put(
                &|style| ticktax_report::sweep(&statement, style),
                &|| ticktax_report::sweep_json(&statement),
                typed.format,
                typed.output.as_deref(),
            )?;
        }
        (None, None) => {
            let statement = own::run(typed, terminal)?;
            print(&statement, typed, terminal)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(
    statement: &PaceStatement,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<(), Failure> {
    terminal.put(
        &|style| ticktax_report::pace(statement, style),
        &|| ticktax_report::pace_json(statement),
        typed.format,
        typed.output.as_deref(),
    )
}

/// How often somebody who watches is told how it goes.
const LIVE: Nanos = Nanos::from_secs(1);

/// A frame is overshot from here on: one tick of this kernel. Where its frequency is not known, it
/// is taken for the longest, and the second says so.
fn tick(machine: &Machine) -> (Nanos, Option<Limitation>) {
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
fn sampled_at_tick(machine: &Machine) -> Option<bool> {
    let all = |cpus: &CpuList| cpus.iter().all(|cpu| sampled(machine, cpu) == Some(true));
    Some(sampled(machine, Cpu(0))? && all(&machine.online))
}

/// The CPU of a loop: the one that was named, or the last one that this process may run on, which
/// interrupts and daemons leave alone most.
fn cpu(typed: &PaceArguments) -> Result<Cpu, Failure> {
    if let Some(cpu) = typed.cpu() {
        return Ok(cpu);
    }
    let online = ticktax_probes::online_cpus()?;
    let allowed = ticktax_probes::allowed_cpus();
    let last = online.iter().filter(|&cpu| allowed.contains(cpu)).last();
    last.or_else(|| online.iter().last())
        .ok_or_else(|| ProbeError::NoCpu { online }.into())
}

/// Refuses settings that no loop can keep in `length`, before anything is run.
fn require_possible(settings: &PaceSettings, length: Nanos) -> Result<(), Failure> {
    if length <= settings.period {
        return Err(Failure::Arguments(format!(
            "{length} is over before the first frame is due, after {}: run for longer, or raise the \
             rate",
            settings.period
        )));
    }
    if settings.work >= settings.period {
        let error = ProbeError::Work {
            work: settings.work,
            period: settings.period,
        };
        return Err(Failure::Arguments(error.to_string()));
    }
    Ok(())
}

/// Seconds since 1970 on the wall clock.
fn unix_time() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}
