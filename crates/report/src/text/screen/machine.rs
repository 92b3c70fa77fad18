//! The first screen about a machine. It shows how CPU time was used, how much was taken from
//! programs, the periodic sources, and the errors in `top`.

mod repeats;

use ticktax_model::Nanos;
use ticktax_model::accounting::CpuCheck;
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::{Account, CpuAccounts, Holder, Statement};
use ticktax_model::waits::{WaitStatement, WaitingProgram};
use ticktax_model::witness::Proof;

use super::groups::{Group, name_services, programs};
use super::tables::{CPUS, LARGE, MUCH, Rest, Table, WAIT, WORDS_WIDTH};
use super::{Screen, advice};
use crate::text::group_names::GroupNames;
use crate::text::guests;
use crate::text::numbers::{counted, displayed, percent};
use crate::text::page::{Page, Tone, columns, tied};
use crate::view::Grouping;

/// Minimum number of rows of programs that leaves room for the code of one culprit.
const ROWS_WITH_CODE: usize = 2;
/// Minimum waiting time that puts a program on the list, as a share of the recording.
const WAITED: f64 = 0.001;
/// Minimum length of a single wait that also puts a program on the list.
const LONG_WAIT: Nanos = Nanos::from_millis(5);
/// Maximum error in `top`, as a share of CPU time, that can be due to rounding and chance.
const TOLERABLE: f64 = 0.01;
/// Minimum size of the table of kernel time, as a share of one CPU. Below it, the table can be left
/// out to make room.
const LITTLE: f64 = 0.04;
/// Minimum difference between the steal clock and the observed steal, as a share of CPU time, for
/// the steal clock to be shown.
const STOLEN: f64 = 0.001;
/// Minimum length of a part of a gap, as a share of the gap's largest part. Shorter parts are left
/// out.
const LITTLE_OF_GAP: f64 = 0.05;
/// Minimum share of CPU time used by ticktax itself for the verdict to show it. If a larger share
/// were left out, the shares would visibly not add up.
const OWN: f64 = 0.005;

/// Writes the screen up to its last lines.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    verdict(page, screen);
    if let Some(victim) = &statement.victim {
        let text = format!(
            "{}: none of its threads was seen.",
            super::program::program_name(victim)
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    let whole = statement.balance.elapsed;
    let table = |title| Table {
        keep_from: MUCH,
        title,
        total: Some(whole),
        share_heading: CPUS,
        count_heading: "runs",
        last_heading: "",
        last_cell: &|_| String::new(),
        must_show: &|_| false,
        large: screen.room.large,
        rest: Rest::default(),
        unseen: Nanos::ZERO,
        has_frames: false,
    };
    let names = GroupNames::new(statement);
    let by = screen.style.grouping;
    let mut groups = programs(&statement.accounts, by, &names);
    name_services(&mut groups, by, &names);
    if !groups.is_empty() {
        screen.gap(page);
        table("CPU TIME").write(page, &groups, screen.room.rows);
    }
    waited_for(page, screen, &names);
    let taken = taken(&statement.accounts);
    let sum: Nanos = taken.iter().map(|group| group.time).sum();
    // The verdict already contains this sum. If room is scarce, the table of CPU time is more
    // important.
    let much = if screen.room.terse {
        sum.share_of(whole - time_of(statement, Holder::Nothing)) >= LARGE
    } else {
        sum.share_of(crate::text::wall(statement)) >= LITTLE
    };
    if !taken.is_empty() && (screen.room.spaced || much) {
        let table = Table {
            count_heading: "count",
            ..table("KERNEL AND HYPERVISOR")
        };
        table.write(page, &taken, screen.room.other_rows + 1);
    }
    let throttled = throttled(statement);
    if !throttled.is_empty() {
        let table = Table {
            total: None,
            count_heading: "count",
            ..table("THROTTLED")
        };
        table.write(page, &throttled, screen.room.other_rows);
    }
    repeats::write(page, screen);
    gaps(page, statement);
    screen.gap(page);
    let guests = statement.guests.as_ref().and_then(guests::summary);
    if let Some(text) = guests {
        page.paragraph(Tone::Plain, "", &text);
    }
    top_and_tick(page, screen);
    advice::write(page, screen);
}

/// Lists the programs that waited for a CPU, and the programs they waited behind.
fn waited_for(page: &mut Page, screen: &Screen<'_>, names: &GroupNames<'_>) {
    let Some(waits) = &screen.statement.waits else {
        return;
    };
    let wall = crate::text::wall(screen.statement);
    let is_much = |program: &&WaitingProgram| {
        program.time.share_of(wall) >= WAITED || program.max >= LONG_WAIT
    };
    // Waits are recorded by program and by group, so they cannot be grouped by process or thread.
    let by = screen.style.grouping;
    let by_group = waits.by_group.as_ref().filter(|_| by == Grouping::Group);
    let title = match by {
        Grouping::Name => "RUN-QUEUE WAITS",
        Grouping::Group if by_group.is_some() => "RUN-QUEUE WAITS",
        Grouping::Process | Grouping::Thread | Grouping::Group => "RUN-QUEUE WAITS, BY NAME",
    };
    let (programs, left_out) = by_group.map_or((&waits.programs, waits.programs_left_out), |by| {
        (&by.groups, by.groups_left_out)
    });
    let (mut much, mut little): (Vec<&WaitingProgram>, Vec<_>) = programs.iter().partition(is_much);
    // If one program is left over, its line takes no more room than a line that sums up the rest.
    if little.len() == 1 && left_out == 0 {
        much.append(&mut little);
    }
    // No program cut from the list waited longer in total than the last program that was kept.
    let last = programs.last().filter(|_| left_out > 0);
    let longest = last.map_or(Nanos::ZERO, |program| program.time);
    let rest = unlisted(waits, &much, &little, left_out, longest);
    let mut groups: Vec<Group> = much
        .into_iter()
        .map(|program| Group {
            name: program.name.clone(),
            pids: program.pids.clone(),
            time: program.time,
            count: program.count,
            max: program.max,
            ..Group::default()
        })
        .collect();
    if groups.is_empty() {
        return;
    }
    name_services(&mut groups, by, names);
    let behind = |group: &Group| {
        let mut programs = programs.iter();
        let program = programs.find(|program| program.name == group.name);
        let mut text = String::new();
        for culprit in program.iter().flat_map(|program| &program.behind) {
            let separator = if text.is_empty() { "" } else { ", " };
            let more = format!("{text}{separator}{}", displayed(&culprit.name));
            if !text.is_empty() && columns(&more) > WORDS_WIDTH {
                break;
            }
            text = more;
        }
        text
    };
    let table = Table {
        keep_from: LARGE,
        large: screen.room.large.saturating_sub(1).max(1),
        title,
        total: Some(waits.time),
        share_heading: WAIT,
        count_heading: "waits",
        last_heading: "behind",
        last_cell: &behind,
        must_show: &|_| false,
        rest,
        unseen: Nanos::ZERO,
        has_frames: false,
    };
    table.write(page, &groups, screen.room.other_rows + 1);
    if screen.room.other_rows >= ROWS_WITH_CODE {
        crate::text::sampled::of_machine(page, &screen.statement.sampled, 1);
    }
}

/// Adds up all waiting except that of the `listed` programs. `little` contains the known programs
/// that are not listed. `left_out` is the number of unknown programs, and `unknown` an upper bound
/// on how long each of them waited.
fn unlisted(
    waits: &WaitStatement,
    listed: &[&WaitingProgram],
    little: &[&WaitingProgram],
    left_out: u64,
    unknown: Nanos,
) -> Rest {
    let time: Nanos = listed.iter().map(|program| program.time).sum();
    let count: u64 = listed.iter().map(|program| program.count).sum();
    Rest {
        groups: little.len() as u64 + left_out,
        time: waits.time - time,
        count: waits.count.saturating_sub(count),
        max: little
            .iter()
            .map(|program| program.max)
            .max()
            .unwrap_or_default(),
        unknown,
    }
}

pub(super) fn time_of(statement: &Statement, holder: Holder) -> Nanos {
    statement.time_of(|class| class.holder() == holder)
}

/// Writes a sentence about how CPU time was divided.
fn verdict(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    let whole = statement.balance.elapsed;
    let title = format!(
        "{}, {}, {}",
        screen.host(),
        counted(statement.cpus.len() as u64, "CPU"),
        tied(crate::text::wall(statement)),
    );
    if whole == Nanos::ZERO {
        page.paragraph(
            Tone::Warning,
            "",
            &format!("{title}: nothing was recorded."),
        );
        return;
    }
    let share = |holder| percent(time_of(statement, holder).share_of(whole));
    let mut parts = vec![
        tied(format!("{} programs", share(Holder::Programs))),
        tied(format!("{} kernel", share(Holder::Kernel))),
    ];
    if statement.machine.hypervisor.is_some() {
        parts.push(tied(hypervisor(statement)));
    }
    let unexplained = time_of(statement, Holder::Unexplained);
    if unexplained > Nanos::ZERO {
        let share = percent(unexplained.share_of(whole));
        parts.push(tied(format!("{share} UNEXPLAINED")));
    }
    let tool = time_of(statement, Holder::Tool).share_of(whole);
    if tool >= OWN {
        parts.push(tied(format!("{} ticktax", percent(tool))));
    }
    parts.push(tied(format!("{} idle", share(Holder::Nothing))));
    let mut text = format!("{title}: {}", parts.join(", "));
    if let Some(share) = waited(statement) {
        let share = tied(format!("{} of the time", percent(share)));
        text = format!("{text}; a task waited for a CPU {share}");
    }
    page.paragraph(Tone::Strong, "", &text);
}

/// Formats the hypervisor's share of CPU time as the observed steal. If the steal clock shows more,
/// adds its total. If late timers prove more, that is a lower bound. An observed steal of zero
/// counts only if there is a steal clock, or if a probe on each CPU would have seen any steal.
fn hypervisor(statement: &Statement) -> String {
    let whole = statement.balance.elapsed;
    let seen = time_of(statement, Holder::Hypervisor);
    let share = percent(seen.share_of(whole));
    let proven = |cpu: &CpuAccounts| {
        let mut proofs = statement.gaps.iter().flat_map(|gaps| &gaps.proofs);
        proofs.any(|proof| proof.cpu == cpu.cpu && proof.proof == Proof::Proven)
    };
    let late = statement.late_timers.as_ref();
    let late = late.map_or(Nanos::ZERO, |late| late.stops.time);
    match statement.stolen {
        Some(clock) if (clock - seen).share_of(whole) >= STOLEN => {
            let clock = percent(clock.share_of(whole));
            if seen == Nanos::ZERO {
                return format!("{clock} stolen (by the steal clock)");
            }
            format!("{share} stolen ({clock} by the steal clock)")
        }
        _ if (late - seen).share_of(whole) >= STOLEN => {
            format!("at least {} stolen", percent(late.share_of(whole)))
        }
        None if seen == Nanos::ZERO && !statement.cpus.iter().all(proven) => {
            "stolen time unknown".to_owned()
        }
        _ => format!("{share} stolen"),
    }
}

/// Returns the share of the recording during which any task waited for a CPU, or `None` if it is
/// unknown. If a spin probe or a soaker ran, it is unknown, because the probe's loop waits whenever
/// anything else runs.
fn waited(statement: &Statement) -> Option<f64> {
    let wall = crate::text::wall(statement);
    let loops = statement.probes.iter().any(|p| p.probe == ProbeKind::Spin);
    let pressure = statement.pressure.get("cpu")?;
    let known = !loops && statement.soakers.is_empty();
    known.then(|| pressure.some.share_of(wall).min(1.0))
}

/// Returns the accounts of CPU time that the kernel and the hypervisor took, largest first.
fn taken(accounts: &[Account]) -> Vec<Group> {
    let taken = accounts.iter().filter(|account| account.class.is_taken());
    let mut groups: Vec<Group> = taken
        .filter(|account| account.time > Nanos::ZERO)
        .map(|account| Group {
            name: crate::text::accounts::name(account),
            time: account.time,
            count: account.intervals.count,
            max: account.intervals.max.unwrap_or_default(),
            ..Group::default()
        })
        .collect();
    groups.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    groups
}

fn throttled(statement: &Statement) -> Vec<Group> {
    let groups = statement.throttled.iter().map(|program| Group {
        name: program.name.clone(),
        pids: program.pid.into_iter().collect(),
        time: program.time,
        count: program.intervals.count,
        max: program.intervals.max.unwrap_or_default(),
        ..Group::default()
    });
    groups.collect()
}

/// Writes the probe's longest interruption by anything other than a program.
fn gaps(page: &mut Page, statement: &Statement) {
    let Some(gaps) = &statement.gaps else {
        return;
    };
    let Some(worst) = gaps.longest.first() else {
        return;
    };
    let most = worst.parts.first().map_or(Nanos::ZERO, |part| part.time);
    let parts: Vec<String> = worst
        .parts
        .iter()
        .take(2)
        .take_while(|part| part.time.share_of(most) >= LITTLE_OF_GAP)
        .map(|part| tied(format!("{} {}", displayed(&part.name), part.time)))
        .collect();
    // The list of the longest gaps excludes gaps in which a program ran.
    let noun = match (gaps.probe, gaps.yielded.gaps.count) {
        (ProbeKind::Spin, 0) => "Longest interruption",
        (ProbeKind::Spin, _) => "Longest interruption by the kernel or hypervisor",
        (ProbeKind::Sleep, 0) => "Longest delay of a probe's wake-up",
        (ProbeKind::Sleep, _) => "Longest delay of a probe's wake-up, not behind a program",
    };
    let parts = if parts.is_empty() {
        String::new()
    } else {
        format!(": {}", parts.join(", "))
    };
    let text = format!(
        "{noun}: {} on CPU {} {}{parts}",
        tied(worst.length),
        worst.cpu,
        tied(format!("at {:.3} s", worst.at.as_secs_f64())),
    );
    page.place(worst.moment());
    page.paragraph(Tone::Plain, "", &text);
}

/// Writes whether `top` is right and what the tick costs, on one line if there is room.
fn top_and_tick(page: &mut Page, screen: &Screen<'_>) {
    let tick = tick(screen.statement);
    match (top(screen), tick) {
        (Some((Tone::Plain, top)), Some(tick)) if columns(&top) + columns(&tick) < page.width() => {
            page.paragraph(Tone::Plain, "", &format!("{top} {tick}"));
        }
        (top, tick) => {
            if let Some((tone, text)) = top {
                page.paragraph(tone, "", &text);
            }
            if let Some(text) = tick {
                page.paragraph(Tone::Plain, "", &text);
            }
        }
    }
}

/// Lists the CPUs about which `top` is wrong, or reports that it is right about all of them.
/// Returns `None` if that is unknown. `top` shows the kernel's own counters.
fn top(screen: &Screen<'_>) -> Option<(Tone, String)> {
    let check = screen.statement.accounting.as_ref();
    let check = check.filter(|check| !check.cpus.is_empty())?;
    let mut off: Vec<_> = check
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu, cpu.surely_off()?, cpu.busy_share?)))
        .collect();
    off.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let wrong = off.iter().take_while(|(_, off, _)| off.abs() >= TOLERABLE);
    let errors: Vec<String> = wrong
        .take(screen.room.wrong_cpus)
        .map(|(cpu, _, traced)| {
            let (shown, traced) = (percent(cpu.shown_share), percent(*traced));
            tied(format!("CPU {} shows {shown}, traced {traced}", cpu.cpu))
        })
        .collect();
    if !errors.is_empty() {
        let text = format!("`top` is wrong: {}", errors.join("; "));
        return Some((Tone::Warning, text));
    }
    if check.cpus.iter().all(is_right) {
        let text = "`top` is accurate to 1 % on every CPU.".to_owned();
        return Some((Tone::Plain, text));
    }
    (!off.is_empty()).then(|| (Tone::Plain, no_error(&check.cpus, off.len())))
}

/// Describes for how many CPUs `top` is right. Called only if no error was found.
fn no_error(cpus: &[CpuCheck], compared: usize) -> String {
    if compared < cpus.len() {
        let all = counted(cpus.len() as u64, "CPU");
        return format!(
            "`top` is accurate on {}; the others were not traced.",
            tied(format!("{compared} of {all}"))
        );
    }
    // The verdict shows only the unexplained share of all CPUs together, so show the largest one
    // here.
    let shares = cpus.iter().map(|cpu| cpu.unexplained.share_of(cpu.elapsed));
    let most = shares.max_by(f64::total_cmp).unwrap_or_default();
    let most = tied(percent(most));
    format!("`top` is accurate on every CPU. At most {most} of a CPU's time is unexplained.")
}

/// Returns whether `top` is right about a CPU, no matter how the unexplained time was spent.
fn is_right(cpu: &CpuCheck) -> bool {
    let unexplained = cpu.unexplained.share_of(cpu.elapsed);
    cpu.off()
        .is_some_and(|off| off.abs() + unexplained < TOLERABLE)
}

/// Describes the cost of the tick in one line, or returns `None` if it is unknown.
fn tick(statement: &Statement) -> Option<String> {
    let bill = statement.tick.as_ref()?;
    let cost = bill.cost.as_ref()?;
    let cpus = bill.cpus.len().max(1) as f64;
    let rate = bill.all().rate().unwrap_or_default();
    let each = cost
        .ticks
        .median
        .map(|median| tied(format!("{} each (median)", median.rough())));
    let mut parts = vec![tied(format!("Tick: {rate:.0} Hz per CPU"))];
    parts.extend(each);
    let share = percent(cost.cores.value / cpus);
    parts.push(tied(format!("{share} of CPU time.")));
    Some(parts.join(", "))
}
