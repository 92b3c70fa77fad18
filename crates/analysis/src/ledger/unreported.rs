//! Finds time and context switches that the kernel counted but no event reported.

use std::collections::BTreeSet;

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::TickMode;
use ticktax_model::recording::{Header, Level};
use ticktax_model::witness::SwitchWitness;
use ticktax_model::{Kind, Nanos, SourceTable};

use super::on_cpu::{OnCpuTimes, ProcessRows};

/// Minimum missing CPU time that is reported.
const WORTH_NAMING: Nanos = Nanos::from_millis(1);
/// Missing time is ignored if it is less than 1/`PART` of a process's time.
const PART: i64 = 100;
/// Tick period assumed if the kernel's is unknown. No kernel has a longer one (`CONFIG_HZ_100`).
const LONGEST_TICK: Nanos = Nanos::from_millis(10);
/// Longest interval between updates of a CPU's clock when the tick stops while the CPU is busy
/// (`sched_tick_remote`).
const REMOTE_TICK: Nanos = Nanos::from_secs(1);

/// Longest time that the scheduler charges to a thread before switching to it. A thread that
/// preempts another is charged from the moment it is woken (docs/explanation/accounting.md: median
/// 24 µs, 90th percentile 37 µs).
const CHARGED_AHEAD: Nanos = Nanos::from_micros(50);

/// Reports context switches that no event reported, and processes whose time is partly or entirely
/// missing from the events. The counters also ran before the recording started and after it ended,
/// so allowance is made for time that may belong there.
pub(super) fn unreported(
    header: &Header,
    on_cpu: &OnCpuTimes,
    sources: &SourceTable,
) -> Vec<Limitation> {
    let switches = header
        .cross_checks
        .as_ref()
        .and_then(|witnesses| witnesses.switches);
    let count = switches.map_or(0, SwitchWitness::unreported);
    let mut unreported = Vec::new();
    if count > 0 {
        unreported.push(Limitation::SwitchesUnreported { count });
    }
    let complete = header.level == Level::Kernel
        && header.coverage.events_lost() == 0
        && !header.coverage.limitations.iter().any(|limitation| {
            matches!(
                limitation,
                Limitation::SourcesMerged { .. } | Limitation::CpusNotWatched { .. }
            )
        });
    let watched = |cpu| header.cpus.iter().any(|books| books.cpu == cpu);
    if !complete || !header.machine.online.iter().all(watched) {
        return unreported;
    }
    let at_ends = allowance(header, 1).unwrap_or_else(|| unwatched(header));
    let traced = traced(sources);
    let rows = on_cpu.by_process(sources);
    for (&pid, after) in &header.after.programs {
        let before = header.before.programs.get(&pid);
        let earlier = before.map_or(Some(Nanos::ZERO), |before| before.on_cpu);
        let Some((end, begin)) = after.on_cpu.zip(earlier) else {
            continue;
        };
        let (name, ran) = (after.name.clone(), end - begin);
        if !traced.contains(&pid) {
            if ran >= WORTH_NAMING && ran > at_ends {
                unreported.push(Limitation::ProcessNotTraced { name, pid, ran });
            }
            continue;
        }
        let none = ProcessRows::default();
        let rows = rows.get(&pid).unwrap_or(&none);
        let missing = ran - rows.time;
        let allowed = allowance(header, rows.threads.len()).map(|at_ends| {
            let least = WORTH_NAMING.max(Nanos(ran.0 / PART));
            let runs = i64::try_from(rows.runs).unwrap_or(i64::MAX);
            let ahead = Nanos(CHARGED_AHEAD.0.saturating_mul(runs));
            at_ends + on_cpu.shortfall() + least + ahead
        });
        if allowed.is_some_and(|allowed| missing > allowed) {
            unreported.push(Limitation::ProcessPartlyTraced {
                name,
                pid,
                ran,
                missing,
            });
        }
    }
    unreported
}

/// Returns the most by which a process's counters can plausibly exceed its rows, given that
/// `threads` of its threads had rows. Before and after the recording, the process can have used as
/// many CPUs as it has threads. A running thread's counter dates from the last tick that updated
/// it. Returns `None` if it is unknown when the counters were read.
fn allowance(header: &Header, threads: usize) -> Option<Nanos> {
    let end = header.cpus.iter().map(|books| books.end).min()?;
    let read = header.after.programs_read?;
    // On a busy machine, the counters may be read before the recording ends, which is not late.
    let read_late = (read - header.after.at.max(end)).max(Nanos::ZERO);
    let at_ends = unwatched(header) + read_late;
    let tick = match (&header.machine.tick_mode, header.machine.hz_configured) {
        (Some(TickMode::NohzFull { .. }), _) => REMOTE_TICK,
        (_, Some(hz)) if hz > 0 => Nanos(1_000_000_000 / i64::from(hz)),
        _ => LONGEST_TICK,
    };
    let parallel = threads.clamp(1, header.cpus.len().max(1));
    let parallel = i64::try_from(parallel).unwrap_or(i64::MAX);
    Some(Nanos((at_ends + tick).0.saturating_mul(parallel)))
}

/// Returns the time between the two counter readings that is not part of the recording.
fn unwatched(header: &Header) -> Nanos {
    let begin = header.cpus.iter().map(|books| books.begin).max();
    let end = header.cpus.iter().map(|books| books.end).min();
    let (Some(begin), Some(end)) = (begin, end) else {
        return Nanos::MAX;
    };
    let before = (begin - header.before.at).max(Nanos::ZERO);
    before + (header.after.at - end).max(Nanos::ZERO)
}

/// Returns the IDs of processes that have at least one row on a CPU.
fn traced(sources: &SourceTable) -> BTreeSet<i32> {
    let threads = sources
        .iter()
        .filter(|(_, source)| source.kind == Kind::Task);
    threads
        .filter_map(|(_, source)| Some(source.thread.as_ref()?.pid))
        .collect()
}
