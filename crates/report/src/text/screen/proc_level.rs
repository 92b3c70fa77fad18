//! The first screen if the kernel was not traced, which shows only the kernel's counters.

use ticktax_model::Nanos;
use ticktax_model::accounting::AccountingStatement;
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::{Class, GapStatement, Statement};
use ticktax_model::victim::VictimStatement;

use super::groups::{Group, processes};
use super::tables::{CPUS, MUCH, Rest, Table};
use super::{Screen, advice};
use crate::text::numbers::{counted, grouped, percent};
use crate::text::page::{Page, Tone, clean, tied};
use crate::text::untraced::Untraced;

/// Writes the screen up to its last lines.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    let why = match Untraced::from_statement(statement) {
        Untraced::NeedsRoot => {
            "WITHOUT ROOT: only the kernel's counters are available. Run as root to see which \
             programs waited for a CPU, and what ran instead."
                .to_owned()
        }
        Untraced::Because(why) => {
            format!("NOT TRACED, only the kernel's counters: {}.", clean(why))
        }
        Untraced::Unknown => "NOT TRACED: only the kernel's counters are available.".to_owned(),
    };
    page.paragraph(Tone::Warning, "", &why);
    screen.gap(page);
    verdict(page, screen);
    if let Some(victim) = &statement.victim {
        program(page, victim);
    }
    if let Some(check) = &statement.accounting {
        top_programs(page, screen, check);
    }
    late(page, statement);
    screen.gap(page);
    advice::write(page, screen);
}

/// Writes how CPU time was divided according to `/proc/stat`.
fn verdict(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    let whole = statement.balance.elapsed;
    let mut parts = Vec::new();
    for (word, classes) in [
        ("programs", &[Class::Program][..]),
        ("system", &[Class::KernelThread][..]),
        ("interrupts", &[Class::Irq, Class::Softirq][..]),
        ("steal", &[Class::Steal][..]),
        // The probe uses only time that would otherwise be idle.
        ("idle", &[Class::Idle, Class::Probe][..]),
    ] {
        let accounts = statement.accounts.iter();
        let mut times = accounts.filter(|a| classes.contains(&a.class)).peekable();
        if times.peek().is_some() {
            let time: Nanos = times.map(|account| account.time).sum();
            parts.push(tied(format!("{} {word}", percent(time.share_of(whole)))));
        }
    }
    let mut waited = String::new();
    let loops = statement.probes.iter().any(|p| p.probe == ProbeKind::Spin);
    if let Some(pressure) = statement.pressure.get("cpu").filter(|_| !loops) {
        let share = pressure.some.share_of(crate::text::wall(statement));
        let share = tied(format!("{} of the time", percent(share)));
        waited = format!("; a task waited for a CPU {share}");
    }
    let text = format!(
        "{}, {}, {}, from /proc/stat: {}{waited}",
        screen.host(),
        counted(statement.cpus.len() as u64, "CPU"),
        tied(crate::text::wall(statement)),
        parts.join(", ")
    );
    page.paragraph(Tone::Strong, "", &text);
}

/// Writes the kernel's counters for the watched program.
fn program(page: &mut Page, victim: &VictimStatement) {
    let mut parts = Vec::new();
    if let Some(usage) = &victim.usage {
        parts.push(tied(format!("ran {}", usage.user + usage.system)));
        if let Some(waited) = usage.waited {
            parts.push(tied(format!("WAITED {waited} for a CPU")));
        }
        parts.push(format!("preempted {}", counted(usage.involuntary, "time")));
    }
    if let Some(quota) = victim.throttling.as_ref().filter(|quota| quota.periods > 0) {
        parts.push(tied(format!(
            "throttled {} in {} of {} periods",
            quota.time,
            grouped(quota.throttled),
            grouped(quota.periods)
        )));
    }
    if parts.is_empty() {
        parts.push("no counters available".to_owned());
    }
    let label = format!("{}: ", super::program::program_name(victim));
    page.paragraph(Tone::Strong, "", &format!("{label}{}.", parts.join(", ")));
}

/// Writes the programs that used most CPU time, as `top` would show them.
fn top_programs(page: &mut Page, screen: &Screen<'_>, check: &AccountingStatement) {
    let shown = check.programs.iter().filter_map(|program| {
        let time = program.shown.filter(|&time| time > Nanos::ZERO)?;
        Some(Group {
            name: program.name.clone(),
            pids: vec![program.pid],
            time,
            ..Group::default()
        })
    });
    let groups = processes(shown.collect(), screen.style.grouping);
    if groups.is_empty() {
        return;
    }
    screen.gap(page);
    // A program's counters disappear when it exits, so the time of exited programs is unknown.
    let statement = screen.statement;
    let ran = statement.time_of(|class| matches!(class, Class::Program | Class::KernelThread));
    let shown_time: Nanos = groups.iter().map(|group| group.time).sum();
    let table = Table {
        keep_from: MUCH,
        title: "CPU TIME, BY /proc/PID",
        total: Some(screen.statement.balance.elapsed),
        share_heading: CPUS,
        count_heading: "runs",
        last_heading: "",
        last_cell: &|_| String::new(),
        must_show: &|_| false,
        large: screen.room.large,
        rest: Rest::default(),
        unseen: (ran - shown_time).max(Nanos::ZERO),
        has_frames: false,
    };
    table.write(page, &groups, screen.room.rows);
}

/// Writes how late the sleep probe woke up. A spin probe is left out, because without a trace, it
/// is unknown how much time its gaps yielded to programs.
fn late(page: &mut Page, statement: &Statement) {
    let gaps = statement.gaps.as_ref();
    let Some(gaps) = gaps.filter(|gaps| gaps.probe == ProbeKind::Sleep) else {
        return;
    };
    if let Some(lengths) = gaps.long.gaps.lengths() {
        let text = format!(
            "{} were at least {} late, median {}, max {}",
            counted(gaps.long.gaps.count, "wake-up"),
            tied(GapStatement::FLOOR),
            tied(lengths.median.rough()),
            tied(lengths.max)
        );
        page.paragraph(Tone::Plain, "Sleep probe: ", &text);
    }
}
