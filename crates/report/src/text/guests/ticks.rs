//! The timer ticks of guests: their rates, their cost, and what other settings would save.

use ticktax_model::Nanos;
use ticktax_model::guests::{
    GuestMachine, GuestStatement, GuestTicks, GuestTimer, TickMode, TickSaving, TimeEstimate,
};

use super::super::block::Columns;
use super::super::numbers::percent;
use super::super::page::{Page, Tone, tied};
use super::{MACHINES, named, whole};

const LEGEND: &str = "TIMER TICKS: expiries of the timers that KVM emulates for the guests. tick: \
    rate of the regular tick, followed by the HZ of the guest's kernel if the rate suggests one. \
    idle: whether the tick goes on while the vCPU is idle. exits and each: mean exits and CPU time \
    of the host per tick, measured on wake-ups by the timer after which the vCPU soon slept again; \
    ± is half of the 95 % interval. Interrupt handlers and context switches of the host are not \
    included. per day: if all ticks cost the same. Savings are predictions from the cost per tick.";

/// Writes the table of ticks. Writes nothing if no timer expired.
pub(super) fn write(page: &mut Page, guests: &GuestStatement) {
    let Some(all) = &guests.ticks else {
        return;
    };
    let headings = ["tick", "idle", "ticks/s", "exits", "each", "per day"];
    page.headings(
        Tone::Faint,
        "TIMER TICKS",
        &cells(headings.map(str::to_owned)),
    );
    let ticking = guests
        .machines
        .iter()
        .filter(|machine| machine.ticks.is_some());
    for machine in ticking.clone().take(MACHINES) {
        if let Some(ticks) = &machine.ticks {
            page.row(Tone::Plain, 2, &named(machine), &row(machine, ticks));
        }
    }
    let count = ticking.count();
    if count > 1 {
        let title = format!("all {count}");
        let cells = sums(all, String::new(), String::new());
        page.row(Tone::Strong, 2, &title, &cells);
    }
    for saving in &all.savings {
        page.paragraph(Tone::Faint, "  ", &saved(saving));
    }
    page.legend(LEGEND);
}

fn row(machine: &GuestMachine, ticks: &GuestTicks) -> Columns {
    let timers = machine.vcpus.iter().filter_map(|vcpu| vcpu.timer.as_ref());
    let busiest = timers.max_by_key(|timer| timer.ticks);
    let tick = busiest.map(tick).unwrap_or_default();
    let idle = busiest.map_or("?", |timer| match timer.mode {
        TickMode::KeepsTicking => "ticks",
        TickMode::StopsWhenIdle => "stops",
        TickMode::Unknown => "?",
    });
    sums(ticks, tick, idle.to_owned())
}

fn tick(timer: &GuestTimer) -> String {
    match (timer.hz, timer.regular) {
        (Some(hz), _) => format!("HZ={hz}"),
        (None, Some(rate)) => format!("{} Hz", whole(rate)),
        (None, None) => "irregular".to_owned(),
    }
}

fn sums(ticks: &GuestTicks, tick: String, idle: String) -> Columns {
    let unknown = || "?".to_owned();
    cells([
        tick,
        idle,
        whole(ticks.ticks_per_s),
        ticks
            .cost
            .exits_per_tick()
            .map_or_else(unknown, |exits| format!("{exits:.1}")),
        ticks.each.map_or_else(unknown, |each| estimated(&each)),
        ticks
            .per_day
            .map_or_else(unknown, |day| day.mean.to_string()),
    ])
}

fn cells(cells: [String; 6]) -> Columns {
    Columns::right([9, 6, 8, 6, 18, 8].into_iter().zip(cells))
}

/// Formats a mean and half of its interval.
fn estimated(time: &TimeEstimate) -> String {
    let half = Nanos((time.high - time.low).0 / 2);
    if half.0 * 1_000 < time.mean.0 {
        return time.mean.to_string();
    }
    format!("{} ± {}", time.mean, percent(half.share_of(time.mean)))
}

fn saved(saving: &TickSaving) -> String {
    let time = tied(format!("{} to {}", saving.per_day.low, saving.per_day.high));
    let avoided = tied(whole(saving.avoided_per_s));
    match saving.hz {
        Some(hz) => format!(
            "Predicted: with {} in guests whose HZ is higher, {avoided} fewer ticks/s would save \
             {time} of CPU time per day.",
            tied(format!("HZ={hz}"))
        ),
        None => format!(
            "Predicted: a tick that stops while a vCPU is idle would avoid at most {avoided} \
             ticks/s and save at most {} of CPU time per day.",
            tied(saving.per_day.high)
        ),
    }
}
