//! The part of a program's screen that lists its stalls by kind. If the program stalled mainly for
//! a reason other than a busy CPU, this replaces the table of culprits.

use ticktax_model::Nanos;
use ticktax_model::victim::{
    Delay, DelayKind, HoldUp, Stall, ThreadState, ThreadTimes, VictimStatement,
};

use super::Screen;
use super::groups::Group;
use super::program::{CAUSE, program_name, time_of, wanted};
use super::tables::{LARGE, Rest, Table};
use crate::text::beats::short_period;
use crate::text::late;
use crate::text::numbers::grouped;
use crate::text::page::{Page, Tone, tied};
use crate::text::stalls::{apart, row_name};

/// Heading of the column with shares.
const LOST: &str = "% stall";
/// Minimum length of a single stall that matters even if stalls are rare.
const LONG: Nanos = Nanos::from_millis(10);

/// Maximum number of rows to add for large stalls.
const MOST_ROWS: usize = 4;
/// Minimum share of all stalls for a kind to be mentioned below the table of culprits.
const MENTIONED: f64 = 0.05;
/// Minimum number of short-lived processes with the same name that deserve a line.
const MANY_PROCESSES: u64 = 20;

/// Returns the kind of stall to explain first, or `None` if the program mostly waited for a CPU or
/// hardly stalled.
pub(super) fn lead(threads: &ThreadTimes) -> Option<&Stall> {
    let lead = threads.costliest()?;
    let for_cpu = matches!(lead.kind, HoldUp::Waiting | HoldUp::Migration);
    let matters = lead.frames + lead.dropped > 0
        || lead.time.share_of(worked(threads)) >= CAUSE
        || lead.max >= LONG;
    (!for_cpu && matters).then_some(lead)
}

/// Returns the total time of the stalls of the kinds that satisfy `is_such`.
pub(super) fn time_in(threads: &ThreadTimes, is_such: impl Fn(HoldUp) -> bool) -> Nanos {
    let stalls = threads.stalls.iter().filter(|stall| is_such(stall.kind));
    stalls.map(|stall| stall.time).sum()
}

/// Returns how long the program's threads had work to do, meaning that they wanted a CPU or
/// stalled.
pub(super) fn worked(threads: &ThreadTimes) -> Nanos {
    wanted(threads) + time_in(threads, HoldUp::is_blocked)
}

/// Returns the time that the program lost to delays, and its longest delay.
pub(super) fn delayed(threads: &ThreadTimes) -> (Nanos, Nanos) {
    let is_counted = |kind: HoldUp| {
        let is_own = matches!(
            kind,
            HoldUp::Deadline | HoldUp::RealTimeLimit | HoldUp::OwnWork | HoldUp::SystemCall
        );
        is_own || kind.is_blocked()
    };
    let for_cpu = time_of(threads, ThreadState::Waiting) + time_of(threads, ThreadState::Throttled);
    let stalls = threads.stalls.iter().filter(|stall| is_counted(stall.kind));
    let longest = stalls.map(|stall| stall.max).max();
    (
        for_cpu + time_in(threads, is_counted),
        longest.unwrap_or_default(),
    )
}

/// Writes the table of stalls.
pub(super) fn table(page: &mut Page, screen: &Screen<'_>, threads: &ThreadTimes) {
    let groups: Vec<Group> = threads.stalls.iter().flat_map(groups).collect();
    let has_frames = groups.iter().any(|group| group.late + group.dropped > 0);
    let period = |group: &Group| group.period.map_or_else(String::new, short_period);
    let lead = groups.first().map(|group| group.name.clone());
    // Rows are sorted by cost, so a large row can follow a small one.
    let total = threads.stalled();
    let is_large = |group: &Group| group.time.share_of(total) >= LARGE;
    let needed = groups.iter().rposition(is_large).map_or(1, |last| last + 1);
    let rows = screen.room.rows.max(needed.min(MOST_ROWS) + 1);
    // A thread runs all through a long frame, so readers would not call it stalled.
    let is_own = threads
        .stalls
        .iter()
        .all(|stall| stall.kind == HoldUp::OwnWork);
    let (title, share_heading, count_heading) = if is_own {
        ("OWN LONG FRAMES", "% time", "frames")
    } else {
        ("STALLED", LOST, "stalls")
    };
    let table = Table {
        keep_from: LARGE,
        title,
        total: Some(threads.stalled()),
        share_heading,
        count_heading,
        last_heading: "period",
        last_cell: &period,
        must_show: &|group| Some(&group.name) == lead.as_ref(),
        large: screen.room.large,
        rest: Rest::default(),
        unseen: Nanos::ZERO,
        has_frames,
    };
    table.write(page, &groups, rows);
    let mut several = threads.stalls.iter().filter(|stall| apart(stall).len() > 1);
    if let Some(stall) = several.next() {
        let to = match apart(stall).len() {
            2 => "and #2".to_owned(),
            count => format!("to #{count}"),
        };
        let text = format!(
            "#1 {to} are separate periodic patterns of {}.",
            row_name(stall)
        );
        page.paragraph(Tone::Faint, "", &text);
    }
}

/// Writes a line about the other kinds of stall, if the costliest kind is already explained by the
/// table of culprits.
pub(super) fn others(page: &mut Page, threads: &ThreadTimes) {
    let total = threads.stalled();
    let others = threads.stalls.iter().filter(|stall| {
        let is_much = stall.time.share_of(total) >= MENTIONED || stall.max >= LONG;
        stall.kind.is_blocked() && stall.frames == 0 && is_much
    });
    let others: Vec<String> = others
        .take(3)
        .map(|stall| {
            let time = tied(format!("{} (max {})", stall.time, stall.max));
            format!("{} {time}", row_name(stall))
        })
        .collect();
    if !others.is_empty() {
        page.paragraph(Tone::Strong, "Also stalled: ", &others.join(", "));
    }
}

/// Returns the rows for a kind of stall. If it has several series, each one gets a row.
fn groups(stall: &Stall) -> Vec<Group> {
    let all = Group {
        name: row_name(stall),
        time: stall.time,
        count: stall.count,
        max: stall.max,
        period: stall.period,
        late: stall.frames,
        dropped: stall.dropped,
        ..Group::default()
    };
    let series = apart(stall);
    if series.is_empty() {
        return vec![all];
    }
    let name = all.name.clone();
    let mut rest = Group {
        name: format!("{name} (other)"),
        period: None,
        ..all
    };
    let mut rows: Vec<Group> = Vec::new();
    for (number, series) in (1..).zip(series) {
        rest.time = (rest.time - series.time).max(Nanos::ZERO);
        rest.count = rest.count.saturating_sub(series.count);
        rest.late = rest.late.saturating_sub(series.frames);
        rest.dropped = rest.dropped.saturating_sub(series.dropped);
        rows.push(Group {
            name: format!("{name} #{number}"),
            time: series.time,
            count: series.count,
            max: series.max,
            period: Some(series.period),
            late: series.frames,
            dropped: series.dropped,
            ..Group::default()
        });
    }
    if rest.count > 0 {
        // The longest of the other stalls is unknown.
        rest.max = Nanos::ZERO;
        rows.push(rest);
    }
    rows
}

/// Returns the kind of stall for a delay.
fn kind_of(delay: &Delay) -> HoldUp {
    match (&delay.stall, delay.kind) {
        (Some(place), _) => place.kind,
        (None, DelayKind::Throttled) => HoldUp::Quota,
        (None, DelayKind::Interrupted) => HoldUp::Interrupts,
        (None, _) if delay.limit.is_some() => HoldUp::RealTimeLimit,
        (None, _) => HoldUp::Waiting,
    }
}

/// Returns the longest delays to show, at most `most`, the longest first. With room for several, at
/// least one of them is of the costliest kind of stall if that has delays.
pub(super) fn longest(threads: &ThreadTimes, most: usize) -> Vec<&Delay> {
    let mut shown: Vec<&Delay> = threads.delays.iter().take(most).collect();
    let kind = threads.costliest().map(|stall| stall.kind);
    let is_lead = |delay: &&Delay| Some(kind_of(delay)) == kind;
    // The title promises the longest delay, so the first line never gives way.
    if shown.len() > 1
        && !shown.iter().any(is_lead)
        && let Some(lead) = threads.delays.iter().find(is_lead)
        && let Some(last) = shown.last_mut()
    {
        *last = lead;
    }
    shown
}

/// Writes which short-lived processes the program started, unless there were few.
pub(super) fn short_lived(
    page: &mut Page,
    screen: &Screen<'_>,
    victim: &VictimStatement,
    threads: &ThreadTimes,
) {
    let many = threads.short_lived.iter();
    let many = many.filter(|processes| processes.count >= MANY_PROCESSES);
    let wall = crate::text::wall(screen.statement).as_secs_f64();
    let many: Vec<String> = many
        .take(3)
        .map(|processes| {
            let count = tied(format!("x{}", grouped(processes.count)));
            let time = tied(format!("{} CPU", processes.time));
            let rate = processes.count as f64 / wall;
            if rate.is_finite() && rate >= 1.0 {
                let rate = tied(format!("{rate:.0} per s"));
                return format!("{} {count} ({rate}, {time})", processes.name);
            }
            format!("{} {count} ({time})", processes.name)
        })
        .collect();
    if !many.is_empty() {
        let text = format!("{}, started by {}", many.join(", "), program_name(victim));
        page.paragraph(Tone::Strong, "Short-lived processes: ", &text);
    }
}

/// Writes how many late frames have an unknown cause, and a warning if the hypervisor may have
/// delayed some of them.
pub(super) fn unclassified(page: &mut Page, victim: &VictimStatement) {
    let late = victim
        .frames
        .as_ref()
        .and_then(|frames| frames.late.as_ref());
    let Some(late) = late else {
        return;
    };
    if late.unclassified > 0 {
        let text = tied(format!("unknown {}", grouped(late.unclassified)));
        page.paragraph(Tone::Strong, "Other late frames: ", &text);
    }
    late::possible_steal(page, late);
}

#[cfg(test)]
mod tests {
    use ticktax_model::victim::{Stall, StalledThreads};

    use super::*;
    use crate::text::tests::victims::with_victim;

    /// The third delay of the example is the longest of its costliest kind of stall.
    #[test]
    fn the_longest_delay_comes_first_and_the_costliest_kind_has_a_line() {
        let statement = with_victim(crate::text::tests::samples::kernel_level());
        let mut threads = statement.victim.unwrap().threads.unwrap();
        threads.stalls = vec![Stall {
            kind: HoldUp::Interrupts,
            syscalls: Vec::new(),
            time: Nanos::from_secs(1),
            count: 3,
            max: Nanos(410_000),
            period: None,
            series: Vec::new(),
            frames: 0,
            dropped: 0,
            late: Nanos::ZERO,
            frame_delay: Nanos::ZERO,
            ended_by: Vec::new(),
            threads: StalledThreads::default(),
            longest: Vec::new(),
        }];
        let kinds = |threads: &ThreadTimes, most| -> Vec<HoldUp> {
            longest(threads, most).into_iter().map(kind_of).collect()
        };
        threads.delays.insert(1, threads.delays[0].clone());
        let (waiting, lead) = (HoldUp::Waiting, HoldUp::Interrupts);
        assert_eq!(kinds(&threads, 1), [waiting]);
        assert_eq!(kinds(&threads, 2), [waiting, lead]);
        assert_eq!(kinds(&threads, 3), [waiting, waiting, lead]);
        // Without a costliest kind, the length alone decides.
        threads.stalls.clear();
        assert_eq!(kinds(&threads, 2), [waiting, waiting]);
    }
}
