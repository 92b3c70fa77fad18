//! The first screen about a program. It shows how long the program waited, behind what, and its
//! longest delays.

use ticktax_model::advice::Advice;
use ticktax_model::hook::Hook;
use ticktax_model::pace::Figures;
use ticktax_model::recording::World;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    Delay, DelayKind, LostTo, ProgramFrames, Target, ThreadState, ThreadTimes, VictimStatement,
};
use ticktax_model::{Kind, Nanos};

use super::groups::{Group, assign_frames, culprit_name, interferers, name_services};
use super::tables::{LARGE, Rest, Table, WAIT, late_and_dropped};
use super::verdict::{self, delay};
use super::{Screen, advice, stalls};
use crate::text::beats::short_period;
use crate::text::group_names::GroupNames;
use crate::text::late;
use crate::text::numbers::{counted, grouped, quantiles};
use crate::text::packet_path::culprit_name as called_holder;
use crate::text::page::{Page, Tone, columns, elide, elide_name, tied};
use crate::text::sampled;
use crate::text::stalls::delay_in_words as stall_in_words;

/// Minimum share of the program's wanted time for a cause to be named in the verdict. Smaller
/// causes are ruled out.
pub(super) const CAUSE: f64 = 0.01;
/// Minimum length of the longest packet delay. Below it, packet delays are not shown.
const LONG_WAY: Nanos = Nanos::from_millis(1);
/// Minimum number of rows of culprits that leaves room for the code of one.
pub(super) const ROWS_WITH_CODE: usize = 3;
/// Width of the column that shows how long a delay was and when it occurred.
const DELAY: usize = 25;

/// Writes the screen up to its last lines.
pub(super) fn write(
    page: &mut Page,
    screen: &Screen<'_>,
    victim: &VictimStatement,
    threads: &ThreadTimes,
) {
    let statement = screen.statement;
    let wanted = wanted(threads);
    headline(page, screen, victim, threads);
    if let Some(frames) = &victim.frames {
        page.paragraph(Tone::Strong, "", &frames_in_words(frames));
    }
    verdict::verdict(page, threads, crate::text::wall(statement));
    stalls::short_lived(page, screen, victim, threads);
    if stalls::lead(threads).is_some() {
        screen.gap(page);
        stalls::table(page, screen, threads);
        stalls::unclassified(page, victim);
    } else {
        waited_behind(page, screen, victim, threads);
        stalls::others(page, threads);
    }
    if !threads.delays.is_empty() {
        screen.gap(page);
        delays(page, &stalls::longest(threads, screen.room.other_rows));
    }
    if let Some(latency) = &threads.latency {
        let text = format!(
            "{}, {} {}",
            quantiles(latency.lengths.median, latency.lengths.p99),
            tied(format!("max {}", latency.lengths.max)),
            tied(format!("({})", counted(latency.count, "wake-up"))),
        );
        page.paragraph(Tone::Plain, "Wake-up latency: ", &text);
    }
    packets(page, statement);
    interrupted(page, threads, wanted);
    ruled_out(page, statement, victim, threads, wanted);
    screen.gap(page);
    advice::write(page, screen);
}

/// Writes the table of culprits, with the late and dropped frames that each one caused. A sentence
/// below lists the other causes of late frames.
fn waited_behind(
    page: &mut Page,
    screen: &Screen<'_>,
    victim: &VictimStatement,
    threads: &ThreadTimes,
) {
    let late = victim
        .frames
        .as_ref()
        .and_then(|frames| frames.late.as_ref());
    let causes = late.map_or(&[][..], |late| &*late.causes);
    let by = screen.style.grouping;
    let names = GroupNames::new(screen.statement);
    let mut groups = interferers(&threads.behind, by, &names);
    name_services(&mut groups, by, &names);
    let other_causes = assign_frames(&mut groups, causes, by);
    if !groups.is_empty() {
        screen.gap(page);
        let word = |group: &Group| pattern(group);
        let total = time_of(threads, ThreadState::Waiting);
        let frames = |group: &Group| group.late + group.dropped;
        let most = groups.iter().map(frames).max().unwrap_or_default();
        // The table must show the main cause of late frames or, without late frames, a periodic
        // culprit.
        let must_show = |group: &Group| {
            if most > 0 {
                return frames(group) == most;
            }
            group.time.share_of(total) >= CAUSE && !word(group).is_empty()
        };
        let table = Table {
            keep_from: LARGE,
            title: "WAITED BEHIND",
            total: Some(total),
            share_heading: WAIT,
            count_heading: "count",
            last_heading: "period",
            last_cell: &word,
            must_show: &must_show,
            large: screen.room.large,
            rest: Rest::default(),
            unseen: total - groups.iter().map(|group| group.time).sum::<Nanos>(),
            has_frames: most > 0,
        };
        table.write(page, &groups, screen.room.rows);
        if screen.room.rows >= ROWS_WITH_CODE {
            sampled::of_main_culprit(page, threads);
        }
    }
    if let Some(late) = late {
        let mut parts: Vec<String> = other_causes
            .iter()
            .map(|cause| {
                let frames = late_and_dropped(cause.frames, cause.dropped);
                format!("{} {}", late::name(cause), tied(frames))
            })
            .collect();
        let not_judged = (late.unclassified > 0).then_some(late.unclassified);
        parts.extend(not_judged.map(|frames| tied(format!("unknown {}", grouped(frames)))));
        if !parts.is_empty() {
            let label = if groups.is_empty() {
                "Late+dropped frames by cause: "
            } else {
                "Late+dropped frames with other causes: "
            };
            page.paragraph(Tone::Strong, label, &parts.join(", "));
        }
        late::possible_steal(page, late);
    }
}

/// Writes packet delays and the slowest step. Writes nothing if no packet was delayed for long.
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
        "{}, {} {}; the longest was mostly {}",
        quantiles(lengths.median, lengths.p99),
        tied(format!("max {}", lengths.max)),
        tied(format!("({})", counted(packets.delay.count, "packet"))),
        tied(longest.longest.name()),
    );
    if let Some(first) = longest.ran.first() {
        let behind = format!("behind {} {}", called_holder(first), first.time);
        text = format!("{text}, {}", tied(behind));
    }
    page.paragraph(Tone::Plain, "Packet latency: ", &text);
}

/// Lists the interrupts that took the most time, unless they took too little to matter.
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

/// Writes the program's name, the length of the recording, and the verdict in capitals.
fn headline(page: &mut Page, screen: &Screen<'_>, victim: &VictimStatement, threads: &ThreadTimes) {
    let advice = screen.statement.advice.iter();
    let concerns: Vec<Option<bool>> = advice.map(concerns_delay).collect();
    let delay = delay(victim, threads);
    let (tone, word, threshold) = if lags(victim) {
        // The next line shows the threshold.
        (Tone::Alarm, "LAGGING", String::new())
    } else if delay.is_delayed() {
        (Tone::Alarm, "DELAYED", delay.threshold())
    } else if concerns.contains(&Some(true)) {
        // Advice has its own thresholds.
        (Tone::Alarm, "DELAYED", String::new())
    } else if concerns.contains(&None) {
        (Tone::Strong, "UNCLEAR", String::new())
    } else {
        (Tone::Good, "OK", delay.threshold())
    };
    let wall = crate::text::wall(screen.statement);
    let title = format!("{} on {}, {wall}", program_name(victim), screen.host());
    let mut verdict = format!("  {word}");
    let full = format!("{verdict} ({threshold})");
    // The name of the program is more important than the threshold.
    if !threshold.is_empty() && columns(&title) + columns(&full) <= page.width() {
        verdict = full;
    }
    page.row(tone, 0, &title, &verdict);
}

/// Returns whether the advice is about something that delayed the program, or `None` if that is
/// unknown because only a figure for the whole machine exists.
fn concerns_delay(advice: &Advice) -> Option<bool> {
    match advice {
        Advice::PeriodicProgram { .. }
        | Advice::CompetingPrograms { .. }
        | Advice::OwnThreads { .. }
        | Advice::ShortLivedProcesses { .. }
        | Advice::ConfinedToCpus { .. }
        | Advice::CompetingKernelThread { .. }
        | Advice::Throttled { .. }
        | Advice::RealTimeLimited { .. }
        | Advice::Stalled { .. }
        | Advice::Interrupts { .. }
        | Advice::PageFaults { .. }
        | Advice::MemoryReclaim { .. } => Some(true),
        Advice::Stolen { .. } | Advice::EventsLost { .. } => None,
        Advice::RealTimePriority { .. }
        | Advice::CpusOversubscribed { .. }
        | Advice::CpusSaturated { .. }
        | Advice::KernelWork { .. }
        | Advice::Finding { .. } => Some(false),
    }
}

/// Returns whether any frames were late or dropped.
pub(super) fn lags(victim: &VictimStatement) -> bool {
    let figures = victim.frames.as_ref().map(|frames| &frames.figures);
    figures.is_some_and(|figures| figures.untimely() > 0)
}

/// Formats the loop's rate, and how many frames were dropped and late.
fn frames_in_words(frames: &ProgramFrames) -> String {
    let figures = &frames.figures;
    let fps = figures.average_fps.map(|fps| tied(format!("{fps:.1} FPS")));
    let rate = 1e9 / (figures.period.0.max(1) as f64);
    let mut parts = Vec::from_iter(fps);
    parts.push(dropped(figures));
    parts.push(late::over(figures.late, figures.late_threshold));
    format!(
        "{} loop (thread {}): {}",
        tied(format!("{rate:.1} Hz")),
        frames.thread,
        parts.join(", "),
    )
}

/// Describes the dropped frames, and how many of them may have run late instead.
fn dropped(figures: &Figures) -> String {
    let all = tied(format!("{} dropped", counted(figures.dropped, "frame")));
    match figures.caught_up() {
        0 => all,
        late => {
            let some = if late == figures.dropped {
                "or".to_owned()
            } else {
                format!("{} of them possibly", grouped(late))
            };
            format!("{all} ({} run late, in a catch-up burst)", tied(some))
        }
    }
}

/// Returns the display name of the program.
pub(super) fn program_name(victim: &VictimStatement) -> String {
    match (&victim.target, victim.pid) {
        // Name a service, container or pod without its path.
        (Target::Cgroup(_), _) if victim.name.starts_with('/') => {
            format!("cgroup {}", victim.name)
        }
        (Target::Processes, _) => format!("processes {}", victim.name),
        (_, Some(pid)) => format!("{} ({pid})", victim.name),
        (_, None) => victim.name.clone(),
    }
}

pub(super) fn time_of(threads: &ThreadTimes, state: ThreadState) -> Nanos {
    let accounts = threads.accounts.iter().filter(|a| a.state == state);
    accounts.map(|account| account.time).sum()
}

/// Returns the program's wanted time, meaning how long its threads ran or wanted to run.
pub(super) fn wanted(threads: &ThreadTimes) -> Nanos {
    let wanted = threads.accounts.iter().filter(|a| a.state.is_wanted());
    wanted.map(|account| account.time).sum()
}

/// Formats a group's pattern: its period if it is a single, mostly periodic process, and its policy
/// if threads with that policy run before ordinary threads.
fn pattern(group: &Group) -> String {
    let is_most = group.pids.len() == 1 && group.in_period + group.in_period > group.time;
    let period = group.period.filter(|_| is_most);
    let period = period.map(short_period);
    let policy = group.policy.filter(|policy| policy.goes_first());
    let parts = period
        .into_iter()
        .chain(policy.map(|policy| policy.to_string()));
    parts.collect::<Vec<String>>().join(", ")
}

fn delays(page: &mut Page, delays: &[&Delay]) {
    let wide = page.width() >= 72;
    let title = if wide {
        "LONGEST DELAYS (at: time since the start)"
    } else {
        "LONGEST DELAYS"
    };
    page.line(Tone::Strong, title);
    for delay in delays {
        page.place(delay.moment());
        let at = delay.at.as_secs_f64();
        let head = format!("{:>9} at {at:.3} s", delay.length.to_string());
        if wide {
            let head = format!("{head:<DELAY$}");
            let room = page.width().saturating_sub(columns(&head));
            page.line(
                Tone::Plain,
                &format!("{head}{}", delay_in_words(delay, room)),
            );
        } else {
            page.line(Tone::Plain, &head);
            let room = page.width() - 6;
            page.line(
                Tone::Plain,
                &format!("{:6}{}", "", delay_in_words(delay, room)),
            );
        }
    }
}

/// Describes the kind of a delay, followed by as many of its main causes as fit.
fn delay_in_words(delay: &Delay, room: usize) -> String {
    if let Some(text) = stall_in_words(delay) {
        return elide(&text, room);
    }
    if delay.kind == DelayKind::Throttled {
        return "throttled by its CPU quota".to_owned();
    }
    let first = delay.ran.first().filter(|_| delay.limit.is_none());
    // A part without a known cause comes first if it makes up more than half of the delay.
    let is_behind = first.is_some_and(|first| first.kind != Kind::Idle && unseen(delay).is_none());
    let kind = match (delay.kind, is_behind) {
        (DelayKind::Woken, true) => "wake-up delayed by ",
        (DelayKind::Woken, false) => "wake-up delayed: ",
        (DelayKind::Preempted, true) => "preempted by ",
        (DelayKind::Preempted, false) => "preempted: ",
        (DelayKind::Interrupted, true) => "interrupted by ",
        (DelayKind::Interrupted, false) => "interrupted: ",
        (DelayKind::Blocked, _) => "blocked: ",
        (DelayKind::OwnWork, _) => "its own work: ",
        (DelayKind::Throttled | DelayKind::Unthrottled, true) => "after throttling, behind ",
        (DelayKind::Throttled | DelayKind::Unthrottled, false) => "after throttling: ",
    };
    format!(
        "{kind}{}",
        lost_to(delay, room.saturating_sub(columns(kind)))
    )
}

/// Returns the part of a delay without a known cause, if it is more than half of the delay.
fn unseen(delay: &Delay) -> Option<Nanos> {
    let seen: Nanos = delay.ran.iter().map(|lost| lost.time).sum();
    let unseen = delay.length - seen;
    (unseen + unseen > delay.length).then_some(unseen)
}

/// Minimum share of a delay for the causes that are not named. If they took less together, their
/// time is not shown.
const OTHERS: f64 = 0.01;

/// Names as many of the main causes of a delay as fit, followed by the time of all others.
fn lost_to(delay: &Delay, room: usize) -> String {
    if let Some(limit) = delay.limit {
        return elide(crate::text::victim::limit_name(limit), room);
    }
    let mut text =
        unseen(delay).map_or_else(String::new, |unseen| format!("unknown cause {unseen}"));
    let mut named = unseen(delay).unwrap_or_default();
    for lost in &delay.ran {
        // A small part is not a main cause.
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
        named += lost.time;
    }
    let others = delay.length - named;
    let rest = format!(", others {others}");
    if others.share_of(delay.length) >= OTHERS && columns(&text) + columns(&rest) <= room {
        text += &rest;
    }
    text
}

fn item(lost: &LostTo) -> String {
    format!("{} {}", culprit_name(&lost.name, lost.kind), lost.time)
}

/// Formats a cause with its time. Shortens the name so that both fit into `room` columns.
fn fitting(lost: &LostTo, room: usize) -> String {
    let time = lost.time.to_string();
    let name = crate::text::page::clean(&culprit_name(&lost.name, lost.kind));
    let name = elide_name(&name, room.saturating_sub(columns(&time) + 1));
    format!("{name} {time}")
}

/// Lists the possible causes that took little or no time, and the causes that are unknown.
fn ruled_out(
    page: &mut Page,
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    wanted: Nanos,
) {
    let watched = |hook| statement.coverage.attached.contains(&hook);
    let moving = threads.behind.iter().filter(|culprit| culprit.migrated);
    let moving: Nanos = moving.map(|culprit| culprit.time).sum();
    let mut small = Vec::new();
    let mut none = Vec::new();
    let mut add = |name: &'static str, time: Nanos| {
        if time == Nanos::ZERO {
            none.push(tied(name));
        } else if time.share_of(wanted) < CAUSE {
            small.push(tied(format!("{name} ({time})")));
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
    // If steal is listed as a possible cause, it must not be ruled out as well.
    let is_possible = late.is_some_and(|late| late::unplaced_steal(late).is_some());
    if let Some(stolen) = victim.stolen.filter(|_| guest && !is_possible) {
        add("steal", stolen);
    }
    let mut unknown = Vec::new();
    // The model does not simulate page faults.
    if !watched(Hook::PageFault) && statement.world != World::Simulated {
        unknown.push(tied("page faults"));
    }
    if guest && victim.stolen.is_none() {
        unknown.push("steal".to_owned());
    }
    let Some(mut text) = late::ruled_out_in_words(&small, &none) else {
        return;
    };
    if !unknown.is_empty() {
        text = format!("{text} Unknown: {}.", unknown.join(", "));
    }
    page.paragraph(Tone::Plain, "Ruled out: ", &text);
}
