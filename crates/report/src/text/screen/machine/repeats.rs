//! The periodic sources on the first screen about a machine. A source is listed if it takes CPU
//! time from other work.

use ticktax_model::Nanos;
use ticktax_model::beats::{BeatKind, BeatLine};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::{Class, Holder, Statement};
use ticktax_model::waits::{WaitStatement, WaitedFor};

use super::super::PeriodRows;
use super::super::tables::CPUS;
use super::{Screen, time_of};
use crate::text::beats::{beat_name, short_period};
use crate::text::block::Columns;
use crate::text::numbers::{counted, cpu_names, percent};
use crate::text::page::{Page, Tone};

/// Minimum share of its CPUs' time that a periodic source must take from other work to get a line.
const COSTLY: f64 = 0.000_5;
/// Minimum idle share of CPU time. If less is idle, every running program is assumed to delay
/// others.
const SCARCE: f64 = 0.5;

/// Lists the periodic sources that provably take time from other work, costliest first, and only
/// counts the rest.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    let Some(beats) = statement.beats.as_ref().filter(|b| !b.beats.is_empty()) else {
        return;
    };
    let unused = time_of(statement, Holder::Nothing);
    let scarce = unused.share_of(statement.balance.elapsed) < SCARCE;
    let tick = statement.tick.as_ref().and_then(|bill| bill.hz_configured);
    let taken = |beat: &BeatLine| taken_by(beat, statement, scarce);
    let wakers_known = beats.beats.iter().any(is_woken);
    let costs = |beat: &&BeatLine| {
        let slicing = beat.pid.is_some() && is_slicing(beat, tick, wakers_known);
        !beat.by_ticktax && !slicing && !is_tick(beat) && taken(beat) >= COSTLY
    };
    let mut shown: Vec<&BeatLine> = beats.beats.iter().filter(costs).collect();
    shown.sort_by(|a, b| taken(b).total_cmp(&taken(a)));
    let periods = screen.room.periods;
    shown.truncate(match periods {
        PeriodRows::Counted => 0,
        PeriodRows::Listed | PeriodRows::CountedInHeading => screen.room.other_rows,
    });
    // Do not count ticktax's own sources, because the section leaves them out.
    let all = beats.beats.iter().filter(|beat| !beat.by_ticktax).count();
    let left = all - shown.len();
    let wide = page.width() >= 60;
    let cells = |each: &str, share: &str, longest: &str| {
        if wide {
            Columns::right([(9, each), (7, share), (9, longest)])
        } else {
            Columns::right([(7, share)])
        }
    };
    if !shown.is_empty() {
        let heading = cells("median", CPUS, "max");
        let title = if periods == PeriodRows::CountedInHeading && left > 0 {
            format!("PERIODIC ({} of {all})", shown.len())
        } else {
            "PERIODIC".to_owned()
        };
        page.headings(Tone::Strong, &title, &heading);
    }
    for beat in &shown {
        let period = format!("{:<9}", short_period(beat.rhythm.period));
        let cpus = cpu_names(beat.cpus.iter()).replace(crate::text::page::TIE, " ");
        let name = format!("{}, {cpus}", source_name(beat, statement));
        let share = percent(cost(beat));
        let (each, max) = (
            beat.lengths.median.to_string(),
            beat.lengths.max.to_string(),
        );
        page.named_row(
            Tone::Plain,
            2,
            (&period, &name),
            &cells(&each, &share, &max),
        );
    }
    if left > 0 && shown.is_empty() {
        let text = format!(
            "{} (--section repeats)",
            counted(left as u64, "periodic source")
        );
        page.paragraph(Tone::Plain, "", &text);
    } else if left > 0 && periods == PeriodRows::Listed {
        let text = format!("{left} more (--section repeats)");
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

/// Returns the name of a source. If a thread's name differs from its program's, the result contains
/// both.
fn source_name(beat: &BeatLine, statement: &Statement) -> String {
    let mut programs = statement
        .accounts
        .iter()
        .filter(|account| account.class == Class::Program);
    let program = programs.find(|account| account.pid.is_some() && account.pid == beat.pid);
    match (program, beat.pid) {
        (Some(program), Some(pid)) if program.name != beat.name => {
            format!("{} of {} ({pid})", beat.name, program.name)
        }
        _ if beat.hypervisor_or_firmware.is_some() => "hypervisor or firmware".to_owned(),
        _ => beat_name(beat),
    }
}

/// Returns the share of its CPUs' time that a source provably takes from other work. For a thread,
/// this is the time that others waited behind it. If waits are unknown, a program's thread counts
/// with all its time if CPUs are `scarce`, and otherwise not at all. A probe yields to programs, so
/// its gaps count only if they are proven to be outside the kernel.
fn taken_by(beat: &BeatLine, statement: &Statement, scarce: bool) -> f64 {
    let is_thread = match beat.kind {
        BeatKind::OffCpu => return 0.0,
        BeatKind::Gaps => return beat.hypervisor_or_firmware.map_or(0.0, |_| cost(beat)),
        BeatKind::Interrupt | BeatKind::Work => false,
        BeatKind::Thread | BeatKind::ThreadStarts => true,
    };
    let of_kernel = beat.kind == BeatKind::Thread && beat.pid.is_none() && beat.name != UNREPORTED;
    match &statement.waits {
        Some(waits) if is_thread => {
            let cpus = i64::try_from(beat.cpus.len()).unwrap_or(1).max(1);
            let wall = crate::text::wall(statement);
            let whole = Nanos(wall.0.saturating_mul(cpus));
            cost(beat).min(waited_behind(beat, waits).share_of(whole))
        }
        None if is_thread && !of_kernel && !scarce => 0.0,
        _ => cost(beat),
    }
}

/// Returns how long other threads waited behind the source.
fn waited_behind(beat: &BeatLine, waits: &WaitStatement) -> Nanos {
    let name = beat.name.strip_prefix("a new ").unwrap_or(&beat.name);
    let is_source = |waited: &&WaitedFor| match (beat.pid, beat.kind) {
        (Some(pid), _) => waited.pids.contains(&pid),
        (None, BeatKind::ThreadStarts) => waited.name == name,
        (None, _) => waited.name == name && waited.pids.is_empty(),
    };
    waits
        .behind
        .iter()
        .filter(is_source)
        .map(|waited| waited.time)
        .sum()
}

/// Returns the share of its CPUs' time that a source uses. For gaps, this is a share of the time
/// that the probe watched.
fn cost(beat: &BeatLine) -> f64 {
    match &beat.gaps {
        Some(gaps) if beat.kind == BeatKind::Gaps => gaps.share,
        _ => beat.share,
    }
}

/// Returns whether the source is the timer tick, which has its own line.
fn is_tick(beat: &BeatLine) -> bool {
    beat.name.contains("tick_nohz_handler") || beat.name.contains("tick_sched_timer")
}

/// Returns whether a program is periodic only because it shares a busy CPU and the scheduler
/// switches programs at the tick. This does not apply to a thread that is woken periodically,
/// because its waker sets the period.
fn is_slicing(beat: &BeatLine, tick_hz: Option<u32>, wakers_known: bool) -> bool {
    if is_woken(beat) {
        return false;
    }
    let Some(hz) = tick_hz.filter(|&hz| hz > 0) else {
        return false;
    };
    let whole_ticks = |ns: f64| {
        let ticks = ns * f64::from(hz) / 1e9;
        (ticks > 0.9 && (ticks - ticks.round()).abs() < 0.03).then(|| ticks.round())
    };
    let Some(ticks) = whole_ticks(beat.rhythm.period) else {
        return false;
    };
    // If the program also sleeps, it can run for any length of time. If it starts at each tick but
    // is never woken, it had been preempted and had not slept.
    let at_each = wakers_known && ticks < 1.5;
    at_each || whole_ticks(beat.lengths.median.0 as f64).is_some()
}

/// Returns whether it is known what wakes the source.
fn is_woken(beat: &BeatLine) -> bool {
    beat.chain.len() > 1
}
