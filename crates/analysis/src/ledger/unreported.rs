//! What the kernel's own counters have and no event told of.

use std::collections::BTreeSet;

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::TickMode;
use ticktax_model::recording::{Header, Level};
use ticktax_model::witness::SwitchWitness;
use ticktax_model::{Kind, Nanos, SourceTable};

use super::on_cpu::{OnCpuTimes, ProcessRows};

/// A process that ran for less is not missed.
const WORTH_NAMING: Nanos = Nanos::from_millis(1);
/// Nor is less than one part in so many of what it ran.
const PART: i64 = 100;
/// The longest tick of a kernel that does not say (`CONFIG_HZ_100`).
const LONGEST_TICK: Nanos = Nanos::from_millis(10);
/// How often the kernel brings a CPU's clock up to date at least, where the tick stops while the CPU is
/// busy (`sched_tick_remote`).
const REMOTE_TICK: Nanos = Nanos::from_secs(1);

/// What the scheduler charges a thread before it is switched to, at most: from its wake-up on, if it then
/// preempts whatever runs (docs/accounting.md: 24 µs in the median, nine in ten below 37).
const CHARGED_AHEAD: Nanos = Nanos::from_micros(50);

/// Context switches that were not reported, and processes of whose time events told nothing, or too
/// little. Before the books were opened and after they were closed, the counters went on: what may have
/// been then is let pass.
pub(super) fn unreported(
    header: &Header,
    on_cpu: &OnCpuTimes,
    sources: &SourceTable,
) -> Vec<Limitation> {
    let switches = header
        .witnesses
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
                Limitation::SourcesFolded { .. } | Limitation::CpusNotWatched { .. }
            )
        });
    let watched = |cpu| header.books.iter().any(|books| books.cpu == cpu);
    if !complete || !header.machine.online.iter().all(watched) {
        return unreported;
    }
    let outside = allowance(header, 1).unwrap_or_else(|| unwatched(header));
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
            if ran >= WORTH_NAMING && ran > outside {
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
            unreported.push(Limitation::ProcessTracedInPart {
                name,
                pid,
                ran,
                missing,
            });
        }
    }
    unreported
}

/// By how much the counters of a process, of which so many threads had rows, may exceed these rows: while
/// the books were not open, as many of them ran as there are CPUs; and a running thread's counter is as
/// old as the tick that last brought it up to date. `None` where it is not known when they were read.
fn allowance(header: &Header, threads: usize) -> Option<Nanos> {
    let end = header.books.iter().map(|books| books.end).min()?;
    let read = header.after.programs_read?;
    // On a busy machine the counters are read before the books are closed.
    let read_late = (read - header.after.at.max(end)).max(Nanos::ZERO);
    let outside = unwatched(header) + read_late;
    let tick = match (&header.machine.tick_mode, header.machine.hz_configured) {
        (Some(TickMode::NohzFull { .. }), _) => REMOTE_TICK,
        (_, Some(hz)) if hz > 0 => Nanos(1_000_000_000 / i64::from(hz)),
        _ => LONGEST_TICK,
    };
    let at_once = threads.clamp(1, header.books.len().max(1));
    let at_once = i64::try_from(at_once).unwrap_or(i64::MAX);
    Some(Nanos((outside + tick).0.saturating_mul(at_once)))
}

/// The time between the readings of the counters in which the books were not open.
fn unwatched(header: &Header) -> Nanos {
    let begin = header.books.iter().map(|books| books.begin).max();
    let end = header.books.iter().map(|books| books.end).min();
    let (Some(begin), Some(end)) = (begin, end) else {
        return Nanos::MAX;
    };
    let before = (begin - header.before.at).max(Nanos::ZERO);
    before + (header.after.at - end).max(Nanos::ZERO)
}

/// The processes that had a row on a CPU.
fn traced(sources: &SourceTable) -> BTreeSet<i32> {
    let threads = sources
        .iter()
        .filter(|(_, source)| source.kind == Kind::Task);
    threads
        .filter_map(|(_, source)| Some(source.thread.as_ref()?.pid))
        .collect()
}
