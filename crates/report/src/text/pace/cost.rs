//! The cost of a paced loop: its CPU time according to each available clock, and its number of
//! wake-ups.

use ticktax_model::pace::{CpuClock, CpuReading, CpuStatement, PaceStatement, TickAlias, Wakeups};

use super::super::block::Columns;
use super::super::numbers::{counted, percent, rate};
use super::super::page::{Page, Tone, tied};

pub(super) fn write(page: &mut Page, statement: &PaceStatement) {
    let cpu = &statement.cpu;
    if !cpu.readings.is_empty() {
        page.section("CPU time by clock");
        page.headings(Tone::Faint, "", &cells("time", "share"));
        for reading in &cpu.readings {
            let share = percent(reading.time.share_of(reading.elapsed));
            let cells = cells(&reading.time.to_string(), &share);
            page.row(Tone::Plain, 2, &name(reading, cpu), &cells);
        }
        if let Some(alias) = &cpu.alias {
            page.paragraph(Tone::Plain, "", &rhythm(alias));
        }
        if let Some(text) = warning(cpu) {
            page.paragraph(Tone::Warning, "", &text);
        }
    }
    if let Some(wakeups) = &statement.wakeups {
        page.section("Wake-ups");
        page.paragraph(Tone::Plain, "", &wakeups_text(wakeups, cpu));
    }
}

fn cells(time: &str, share: &str) -> Columns {
    Columns::right([(8, time), (8, share)])
}

fn name(reading: &CpuReading, cpu: &CpuStatement) -> String {
    match reading.clock {
        CpuClock::Thread => "exact: the thread's own clock".to_owned(),
        CpuClock::Runs => "exact: sum of its traced runs, without interrupts".to_owned(),
        CpuClock::Schedstat => "by the scheduler (/proc/PID/schedstat)".to_owned(),
        CpuClock::Stat => "as `top` shows it (/proc/PID/stat)".to_owned(),
        CpuClock::Machine => {
            format!("{}, all tasks (/proc/stat)", cpu.cpus.named())
        }
    }
}

/// Describes how the tick distorts CPU time that is sampled at the tick. The error depends on the
/// ratio between the periods of the loop and the tick.
fn rhythm(alias: &TickAlias) -> String {
    let frames = match alias.frames {
        1 => "One frame takes".to_owned(),
        frames => format!("{frames} frames take"),
    };
    let ticks = counted(alias.ticks, "tick");
    let phases = match alias.frames {
        1 => "every frame starts at the same phase of the tick".to_owned(),
        frames => format!("frames start at {frames} phases of the tick"),
    };
    let range = if percent(alias.min) == percent(alias.max) {
        format!("tick samples are right: {}", tied(percent(alias.truth)))
    } else {
        format!(
            "tick samples show between {} and {} instead of {}, depending on when the loop started",
            tied(percent(alias.min)),
            tied(percent(alias.max)),
            tied(percent(alias.truth))
        )
    };
    format!(
        "{frames} {ticks} of {}, so {phases}, and {range}.",
        tied(alias.tick)
    )
}

fn warning(cpu: &CpuStatement) -> Option<String> {
    let has_machine = cpu
        .readings
        .iter()
        .any(|reading| reading.clock == CpuClock::Machine);
    if !has_machine {
        return None;
    }
    match cpu.sampled_at_tick {
        Some(true) => Some(
            "This kernel samples /proc/stat at its tick (TICK_CPU_ACCOUNTING) and charges the \
             whole tick to the task running at that moment. A loop that wakes on the tick and \
             finishes before the next one seems to use too little CPU time, and a loop that always \
             runs at the tick seems to use too much. Trust the first line of the table."
                .to_owned(),
        ),
        Some(false) => None,
        None => Some(
            "This kernel may sample /proc/stat at its tick: its configuration cannot be read. \
             Trust the first line of the table."
                .to_owned(),
        ),
    }
}

fn wakeups_text(wakeups: &Wakeups, cpu: &CpuStatement) -> String {
    let per_second = |count| match rate(count, wakeups.elapsed) {
        rate if rate.is_empty() => "0".to_owned(),
        rate => rate,
    };
    let woken = per_second(wakeups.count);
    let idle = match wakeups.idle_exits {
        None => "This kernel has no idle-state counters (cpuidle), so the number of woken idle \
            CPUs, which cost energy, is unknown."
            .to_owned(),
        Some(ended) if ended.loop_only => format!(
            "{} of these wake-ups per second woke an idle CPU, which costs energy.",
            per_second(ended.count)
        ),
        Some(ended) => format!(
            "{} left an idle state {} times per second, for any reason. The loop cannot have \
             caused more than that.",
            cpu.cpus.named(),
            per_second(ended.count)
        ),
    };
    format!("The loop was woken {woken} times per second. {idle}")
}
