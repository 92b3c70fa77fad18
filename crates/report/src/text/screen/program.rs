//! The first screen about one program: how much it waited, behind whom, and its longest delays.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::hook::Hook;
use ticktax_model::pace::Figures;
use ticktax_model::recording::World;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    Delay, DelayKind, LostTo, PROBE, ProgramFrames, TOOL, Target, ThreadState, ThreadTimes,
    VictimStatement,
};

use super::groups::{Group, culprit_name, interferers};
use super::tables::{LARGE, Rest, Table, WAIT};
use super::{Screen, advice};
use crate::text::beats::short_period;
use crate::text::late;
use crate::text::numbers::{grouped, percent, quantiles};
use crate::text::packet_path::culprit_name as called_holder;
use crate::text::page::{Page, Tone, columns, elide, tied};

/// The verdict names causes from this share of the wanted time on. Smaller ones are listed as not
/// the cause.
const CAUSE: f64 = 0.01;
/// Packet delays are mentioned from this length on.
const LONG_WAY: Nanos = Nanos::from_millis(1);
/// Width of a delay's line before the culprits.
const DELAY: usize = 38;

/// Writes the screen except for its foot.
pub(super) fn write(
    page: &mut Page,
    screen: &Screen<'_>,
    victim: &VictimStatement,
    threads: &ThreadTimes,
) {
    let statement = screen.statement;
    headline(page, screen, victim);
    if let Some(frames) = &victim.frames {
        page.paragraph(Tone::Strong, "", &frames_in_words(frames));
        if let Some(late) = &frames.late {
            late::write(page, late, Some(frames.figures.late_from));
            late::possible_steal(page, late);
        }
    }
    let wanted = wanted(threads);
    verdict(page, threads, wanted);
    if !threads.behind.is_empty() {
        screen.gap(page);
        let groups = interferers(&threads.behind, screen.style.grouping);
        let word = |group: &Group| pattern(group);
        let whole = time_of(threads, ThreadState::Waiting);
        let table = Table {
            keep_from: LARGE,
            title: "WHO MADE IT WAIT",
            total: Some(whole),
            share_heading: WAIT,
            last_heading: "pattern",
            last_cell: &word,
            must_show: &|group| group.time.share_of(whole) >= CAUSE && !word(group).is_empty(),
            large: screen.room.large,
            rest: Rest::default(),
            unseen: whole - groups.iter().map(|group| group.time).sum::<Nanos>(),
        };
        table.write(page, &groups, screen.room.rows);
    }
    if !threads.delays.is_empty() {
        screen.gap(page);
        delays(page, &threads.delays, screen.room.other_rows);
    }
    if let Some(latency) = &threads.latency {
        let text = format!(
            "{}, longest {}, {}",
            quantiles(latency.lengths.median, latency.lengths.p99),
            tied(latency.lengths.max),
            tied(format!("n {}", grouped(latency.count))),
        );
        page.paragraph(Tone::Plain, "Woken to running: ", &text);
    }
    packets(page, statement);
    interrupted(page, threads, wanted);
    let not = ruled_out(statement, victim, threads, wanted);
    if !not.is_empty() {
        page.paragraph(Tone::Plain, "Not the cause: ", &not.join(", "));
    }
    screen.gap(page);
    advice::write(page, screen);
}

/// Writes the packet delays and the slowest step, if a packet took long.
fn packets(page: &mut Page, statement: &Statement) {
    let Some(packets) = &statement.packets else {
        return;
    };
    let (Some(lengths), Some(longest)) = (packets.delay.lengths(), packets.longest.first()) else {
        return;
    };
    if lengths.max < LONG_WAY {
        return;
    }
    let mut text = format!(
        "{}, longest {}, {}; the longest mostly {}",
        quantiles(lengths.median, lengths.p99),
        tied(lengths.max),
        tied(format!("n {}", grouped(packets.delay.count))),
        tied(longest.longest.name()),
    );
    if let Some(first) = longest.by.first() {
        let behind = format!("behind {} {}", called_holder(first), first.time);
        text = format!("{text}, {}", tied(behind));
    }
    page.paragraph(Tone::Plain, "Packets to running: ", &text);
}

/// Writes the interrupts that took most, if they took much.
fn interrupted(page: &mut Page, threads: &ThreadTimes, wanted: Nanos) {
    if time_of(threads, ThreadState::Interrupted).share_of(wanted) < CAUSE {
        return;
    }
    let most = threads.interrupted_by.iter().take(3);
    let most: Vec<String> = most
        .map(|source| {
            tied(format!(
                "{} {}",
                culprit_name(&source.name, source.kind),
                source.time
            ))
        })
        .collect();
    page.paragraph(Tone::Plain, "Interrupted by: ", &most.join(", "));
}

/// Writes the program, the length of the recording, and the verdict in capitals.
fn headline(page: &mut Page, screen: &Screen<'_>, victim: &VictimStatement) {
    let advice = screen.statement.advice.iter();
    let held_up: Vec<Option<bool>> = advice.map(is_held_up).collect();
    let (tone, word) = if lags(victim) {
        (Tone::Alarm, "LAGGING")
    } else if held_up.contains(&Some(true)) {
        (Tone::Alarm, "HELD UP")
    } else if held_up.contains(&None) {
        (Tone::Strong, "")
    } else {
        (Tone::Good, "NOT HELD UP")
    };
    let wall = crate::text::wall(screen.statement);
    let title = format!("{}, {wall} on {}", program_name(victim), screen.host());
    page.row(tone, 0, &title, &format!("  {word}"));
}

/// Whether the advice concerns something that kept the program from running. `None` if only the
/// machine-wide figure is known, so that it may have.
fn is_held_up(advice: &Advice) -> Option<bool> {
    match advice {
        Advice::PeriodicProgram { .. }
        | Advice::CrowdingPrograms { .. }
        | Advice::OwnThreads { .. }
        | Advice::CrowdingKernelThread { .. }
        | Advice::Throttled { .. }
        | Advice::RealTimeHeld { .. }
        | Advice::Interrupts { .. }
        | Advice::PageFaults { .. }
        | Advice::MemoryReclaim { .. } => Some(true),
        Advice::Stolen { .. } | Advice::EventsLost { .. } => None,
        Advice::RealTimeFirst { .. }
        | Advice::Overbooked { .. }
        | Advice::CpusFull { .. }
        | Advice::KernelWork { .. }
        | Advice::Finding { .. } => Some(false),
    }
}

/// Whether frames were late or dropped.
pub(super) fn lags(victim: &VictimStatement) -> bool {
    let figures = victim.frames.as_ref().map(|frames| &frames.figures);
    figures.is_some_and(|figures| figures.untimely() > 0)
}

/// The loop's rate and its untimely frames. Late frames are left out if they have their own line.
fn frames_in_words(frames: &ProgramFrames) -> String {
    let figures = &frames.figures;
    let fps = figures.average_fps.map(|fps| tied(format!("{fps:.1} FPS")));
    let rate = 1e9 / (figures.period.0.max(1) as f64);
    let mut parts = Vec::from_iter(fps);
    parts.push(tied(dropped(figures)));
    // Otherwise the line about late frames shows them.
    if frames.late.is_none() {
        parts.push(late::over(figures.late, figures.late_from));
    }
    format!(
        "Loop of {} in {}: {}",
        tied(format!("{rate:.1} Hz")),
        frames.thread,
        parts.join(", "),
    )
}

/// The number of dropped frames, and how many of them may have run late.
fn dropped(figures: &Figures) -> String {
    let all = format!("{} dropped", grouped(figures.dropped));
    match figures.caught_up() {
        0 => all,
        caught_up => format!("{all} ({} perhaps caught up)", grouped(caught_up)),
    }
}

/// The program's display name.
pub(super) fn program_name(victim: &VictimStatement) -> String {
    match (&victim.target, victim.pid) {
        (Target::Cgroup(_), _) => format!("cgroup {}", victim.name),
        (Target::Processes, _) => format!("processes {}", victim.name),
        (_, Some(pid)) => format!("{} ({pid})", victim.name),
        (_, None) => victim.name.clone(),
    }
}

fn time_of(threads: &ThreadTimes, state: ThreadState) -> Nanos {
    let accounts = threads.accounts.iter().filter(|a| a.state == state);
    accounts.map(|account| account.time).sum()
}

fn wanted(threads: &ThreadTimes) -> Nanos {
    let wanted = threads.accounts.iter().filter(|a| a.state.is_wanted());
    wanted.map(|account| account.time).sum()
}

/// Writes how much of the wanted time the program ran, and what took the rest.
fn verdict(page: &mut Page, threads: &ThreadTimes, wanted: Nanos) {
    let mut parts = Vec::new();
    for state in [
        ThreadState::Running,
        ThreadState::Waiting,
        ThreadState::Throttled,
        ThreadState::Interrupted,
        ThreadState::PageFault,
        ThreadState::Reclaim,
    ] {
        let mut accounts = threads.accounts.iter();
        let account = accounts.find(|account| account.state == state);
        let time = account.map_or(Nanos::ZERO, |account| account.time);
        let share = time.share_of(wanted);
        let always = matches!(state, ThreadState::Running | ThreadState::Waiting);
        if !always && share < CAUSE {
            continue;
        }
        let word = match state {
            ThreadState::Waiting => "WAITED",
            ThreadState::Throttled => "THROTTLED",
            ThreadState::Interrupted => "interrupted",
            ThreadState::PageFault => "in page faults",
            ThreadState::Reclaim => "reclaiming memory",
            _ => "ran",
        };
        let longest = account.and_then(|account| account.max);
        let longest = longest.filter(|_| state == ThreadState::Waiting);
        let part = tied(format!("{word} {time} ({})", rounded(share)));
        parts.push(part);
        parts.extend(longest.map(|max| tied(format!("worst {max}"))));
    }
    let head = tied(format!("Wanted the CPU {wanted}: "));
    page.paragraph(Tone::Strong, "", &format!("{head}{}", parts.join(", ")));
}

/// Formats a share of the wanted time, without decimals between 10 % and 99 %.
fn rounded(share: f64) -> String {
    match share * 100.0 {
        size if (9.95..99.5).contains(&size) => format!("{size:.0} %"),
        _ => percent(share),
    }
}

/// The period of a group that is a single process running mostly periodically, and its policy if
/// that takes precedence over others.
fn pattern(group: &Group) -> String {
    let is_most = group.pids.len() == 1 && group.in_period + group.in_period > group.time;
    let period = group.period.filter(|_| is_most);
    let period = period.map(|period| format!("EVERY {}", short_period(period)));
    let policy = group.policy.filter(|policy| policy.goes_first());
    let parts = period
        .into_iter()
        .chain(policy.map(|policy| policy.to_string()));
    parts.collect::<Vec<String>>().join(", ")
}

fn delays(page: &mut Page, delays: &[Delay], most: usize) {
    let wide = page.width() >= 72;
    let heading = format!("{:<1$}", "WORST DELAYS", if wide { DELAY } else { 0 });
    page.line(Tone::Strong, &format!("{heading} lost mainly to"));
    for delay in delays.iter().take(most) {
        let kind = match delay.kind {
            DelayKind::Woken => "woken late",
            DelayKind::Preempted => "preempted",
            DelayKind::Interrupted => "interrupted",
            DelayKind::Throttled => "throttled",
            DelayKind::Unthrottled => "unthrottled",
        };
        page.place(delay.moment());
        let at = delay.at.as_secs_f64();
        let head = format!("{:>9}  at {at:>8.3} s", delay.length.to_string());
        if wide {
            let head = format!("{head}  {kind:<12}");
            let room = page.width().saturating_sub(columns(&head) + 1);
            page.line(Tone::Plain, &format!("{head} {}", lost_to(delay, room)));
        } else {
            page.line(Tone::Plain, &format!("{head}  {kind}"));
            let room = page.width() - 11;
            page.line(Tone::Plain, &format!("{:11}{}", "", lost_to(delay, room)));
        }
    }
}

/// Names the main causes of a delay, as many as fit.
fn lost_to(delay: &Delay, room: usize) -> String {
    if delay.kind == DelayKind::Throttled {
        return "its CPU quota".to_owned();
    }
    if let Some(limit) = delay.limit {
        return elide(crate::text::victim::limit_name(limit), room);
    }
    let seen: Nanos = delay.lost_to.iter().map(|lost| lost.time).sum();
    let unseen = delay.length - seen;
    let mut text = if unseen + unseen > delay.length {
        format!("nothing seen {unseen}")
    } else {
        String::new()
    };
    for lost in &delay.lost_to {
        // Small parts are not main causes.
        if !text.is_empty() && lost.time.share_of(delay.length) < 0.05 {
            break;
        }
        let item = item(lost);
        let separator = if text.is_empty() { "" } else { ", " };
        let left = room.saturating_sub(columns(&text) + columns(separator));
        if text.is_empty() {
            text = fitting(lost, left);
        } else if columns(&item) <= left {
            text = format!("{text}{separator}{item}");
        } else {
            break;
        }
    }
    text
}

fn item(lost: &LostTo) -> String {
    format!("{} {}", culprit_name(&lost.name, lost.kind), lost.time)
}

/// A cause with its name shortened to fit.
fn fitting(lost: &LostTo, room: usize) -> String {
    let time = lost.time.to_string();
    let name = crate::text::page::clean(&culprit_name(&lost.name, lost.kind));
    let name = elide(&name, room.saturating_sub(columns(&time) + 1));
    format!("{name} {time}")
}

/// Lists the possible causes that took little or no time, and those that are unknown.
fn ruled_out(
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    wanted: Nanos,
) -> Vec<String> {
    let watched = |hook| statement.coverage.attached.contains(&hook);
    let moving = threads.behind.iter().filter(|culprit| culprit.moved);
    let moving: Nanos = moving.map(|culprit| culprit.time).sum();
    let mut small = Vec::new();
    let mut none = Vec::new();
    let mut add = |name: &'static str, time: Nanos| {
        if time == Nanos::ZERO {
            none.push(name);
        } else if time.share_of(wanted) < CAUSE {
            small.push(tied(format!("{name} {time}")));
        }
    };
    // The timer's hook alone does not cover device interrupts.
    if watched(Hook::LocalTimer) && watched(Hook::IrqHandler) {
        add("interrupts", time_of(threads, ThreadState::Interrupted));
    }
    add("migration", moving);
    if watched(Hook::PageFault) {
        add("page faults", time_of(threads, ThreadState::PageFault));
    }
    if watched(Hook::DirectReclaim) {
        add("reclaim", time_of(threads, ThreadState::Reclaim));
    }
    if victim.throttling.is_some() {
        add("quota", time_of(threads, ThreadState::Throttled));
    }
    let guest = statement.machine.hypervisor.is_some();
    let late = victim
        .frames
        .as_ref()
        .and_then(|frames| frames.late.as_ref());
    // If steal is listed as a possible cause, it must not be listed as ruled out.
    let is_possible = late.is_some_and(|late| late::unplaced_steal(late).is_some());
    if let Some(stolen) = victim.stolen.filter(|_| guest && !is_possible) {
        add("steal", stolen);
    }
    if let [rest @ .., last] = &*none {
        let names = rest.iter().map(|name| format!("{name}, "));
        small.push(format!(
            "{}{}",
            names.collect::<String>(),
            tied(format!("{last} 0"))
        ));
    }
    let mut unknown = Vec::new();
    // The model has no page faults.
    if !watched(Hook::PageFault) && statement.world != World::Simulated {
        unknown.push(tied("page faults"));
    }
    if guest && victim.stolen.is_none() {
        unknown.push("steal".to_owned());
    }
    if let Some(last) = small.last_mut().filter(|_| !unknown.is_empty()) {
        *last = format!("{last}; unknown: {}", unknown.join(", "));
    }
    small
}

/// The cost of observing to the program itself.
pub(super) fn observer(victim: &VictimStatement, threads: &ThreadTimes) -> String {
    let own = |name: &str| matches!(name, TOOL | PROBE);
    let behind = threads.behind.iter().filter(|culprit| own(&culprit.name));
    let time: Nanos = behind.map(|culprit| culprit.time).sum();
    let share = percent(time.share_of(wanted(threads)));
    format!(
        "{} waited {} behind ticktax ({}).",
        victim.name,
        tied(time),
        tied(share)
    )
}
