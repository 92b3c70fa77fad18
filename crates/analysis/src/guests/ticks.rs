//! Infers the timer tick of each guest, and what it costs the host.
//!
//! The intervals between the times at which a timer was due do not depend on how late it was. A
//! regular tick therefore has almost equal intervals.

use ticktax_model::Nanos;
use ticktax_model::guests::{
    GuestTicks, GuestTimer, Halts, TickMode, TickSaving, TimeEstimate, TimerCost, TimerSums,
    VcpuSums,
};

/// Values of `HZ` that a Linux kernel can be built with on x86.
const USUAL_HZ: [u32; 4] = [100, 250, 300, 1_000];
/// Maximum relative difference from such a value.
const TOLERANCE: f64 = 0.005;
/// Minimum number of equal intervals of a regular tick.
const REGULAR: u64 = 20;
/// Minimum share of such intervals if the tick does not cover the whole time.
const FREQUENT: f64 = 0.25;
/// Minimum part of the time that the equal intervals of a continuous tick cover.
const CONTINUOUS: f64 = 0.9;
/// Minimum part of the time in which a vCPU must be idle to tell whether its tick stops.
const IDLE: f64 = 0.2;
/// Minimum number of wake-ups to estimate the cost of a tick.
const WAKEUPS: u64 = 10;
/// Half of a 95 % interval, in standard errors.
const HALF_95: f64 = 1.96;
const DAY_S: f64 = 86_400.0;

/// The regular tick of a timer.
struct Regular {
    rate: f64,
    is_continuous: bool,
}

/// Finds the regular tick. If several intervals are frequent, it is the shortest: a tick that stops
/// while the vCPU is idle also has multiples of its period.
fn regular(sums: &TimerSums) -> Option<Regular> {
    let time = sums.last - sums.first;
    let candidates = sums.frequent.iter().filter_map(|interval| {
        let is_continuous = interval.total.share_of(time) >= CONTINUOUS;
        let share = interval.count as f64 / sums.intervals.max(1) as f64;
        let is_regular = interval.count >= REGULAR && (is_continuous || share >= FREQUENT);
        let rate = interval.count as f64 / interval.total.as_secs_f64().max(1e-9);
        is_regular.then_some(Regular {
            rate,
            is_continuous,
        })
    });
    candidates.max_by(|a, b| a.rate.total_cmp(&b.rate))
}

/// Describes a vCPU's timer. `seen` is the time from the vCPU's first row to its last one.
pub(super) fn timer(
    sums: &TimerSums,
    halts: Option<&Halts>,
    seen: Nanos,
    elapsed: Nanos,
) -> GuestTimer {
    let regular = regular(sums);
    let ticked = sums.last - sums.first;
    let slept = halts.map_or(Nanos::ZERO, |halts| halts.slept_time);
    // The vCPU may have been idle only before the first expiry and after the last one.
    let slept_between = slept - (seen - ticked).max(Nanos::ZERO);
    let mode = match &regular {
        Some(regular) if regular.is_continuous => {
            if slept_between.share_of(ticked) >= IDLE {
                TickMode::KeepsTicking
            } else {
                TickMode::Unknown
            }
        }
        Some(_) if slept.share_of(seen) >= IDLE => TickMode::StopsWhenIdle,
        _ => TickMode::Unknown,
    };
    let rate = regular.map(|regular| regular.rate);
    let near = |hz: &u32| rate.is_some_and(|rate| (rate / f64::from(*hz) - 1.0).abs() < TOLERANCE);
    GuestTimer {
        ticks: sums.ticks,
        ticks_per_s: per_second(sums.ticks, elapsed),
        is_pit: sums.pit_ticks.saturating_mul(2) > sums.ticks,
        is_one_shot: sums.armed.saturating_mul(2) > sums.ticks.saturating_sub(sums.pit_ticks),
        regular: rate,
        hz: USUAL_HZ.into_iter().find(near),
        mode,
    }
}

fn per_second(count: u64, elapsed: Nanos) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(1e-9)
}

/// Mean CPU time per tick, and its 95 % interval.
fn each(cost: &TimerCost) -> Option<TimeEstimate> {
    if cost.wakeups < WAKEUPS || cost.ticks == 0 {
        return None;
    }
    let wakeups = cost.wakeups as f64;
    let per_tick = wakeups / cost.ticks as f64;
    let mean = cost.host.0 as f64 / wakeups;
    let variance = cost.squares_16ns as f64 * 256.0 / wakeups - mean * mean;
    let half = HALF_95 * (variance.max(0.0) / wakeups).sqrt();
    Some(TimeEstimate {
        mean: nanos(mean * per_tick),
        low: nanos((mean - half).max(0.0) * per_tick),
        high: nanos((mean + half) * per_tick),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the times are far below the limit, and a cast saturates"
)]
fn nanos(time: f64) -> Nanos {
    Nanos(time.round() as i64)
}

/// Returns the CPU time per day of this many ticks per second.
fn per_day(each: TimeEstimate, ticks_per_s: f64) -> TimeEstimate {
    each.map(|each| nanos(each.0 as f64 * ticks_per_s * DAY_S))
}

/// Sums the ticks of a machine's vCPUs. Returns `None` if no timer expired.
pub(super) fn machine(
    timers: &[&GuestTimer],
    vcpus: &[&VcpuSums],
    elapsed: Nanos,
) -> Option<GuestTicks> {
    let ticks: u64 = timers.iter().map(|timer| timer.ticks).sum();
    if ticks == 0 {
        return None;
    }
    let mut cost = TimerCost::default();
    let sums = vcpus.iter().filter_map(|vcpu| vcpu.timer.as_ref());
    sums.for_each(|sums| cost.add(&sums.cost));
    let mut sum = GuestTicks {
        ticks,
        ticks_per_s: per_second(ticks, elapsed),
        each: each(&cost),
        cost,
        ..GuestTicks::default()
    };
    let Some(each) = sum.each else {
        return Some(sum);
    };
    sum.per_day = Some(per_day(each, sum.ticks_per_s));
    let saving = |hz, avoided_per_s: f64| {
        (avoided_per_s > 0.0).then(|| TickSaving {
            hz,
            avoided_per_s,
            per_day: per_day(each, avoided_per_s),
        })
    };
    for hz in USUAL_HZ {
        let avoided = timers.iter().filter_map(|timer| {
            let now = timer.hz.filter(|now| *now > hz)?;
            Some(timer.ticks_per_s * (1.0 - f64::from(hz) / f64::from(now)))
        });
        sum.savings.extend(saving(Some(hz), avoided.sum()));
    }
    let keeps = timers
        .iter()
        .any(|timer| timer.mode == TickMode::KeepsTicking);
    if keeps {
        let avoided = per_second(cost.ticks, elapsed);
        sum.savings.extend(saving(None, avoided));
    }
    Some(sum)
}

/// Sums the ticks of all machines. Returns `None` if no timer expired.
pub(super) fn all<'a>(
    machines: impl Iterator<Item = &'a GuestTicks>,
    elapsed: Nanos,
) -> Option<GuestTicks> {
    let mut sum = GuestTicks::default();
    for machine in machines {
        sum.ticks += machine.ticks;
        sum.cost.add(&machine.cost);
        add(&mut sum.per_day, machine.per_day);
        for saving in &machine.savings {
            let same = sum.savings.iter_mut().find(|same| same.hz == saving.hz);
            match same {
                Some(same) => {
                    same.avoided_per_s += saving.avoided_per_s;
                    same.per_day = same.per_day.plus(saving.per_day);
                }
                None => sum.savings.push(*saving),
            }
        }
    }
    // The setting without a number comes last.
    sum.savings
        .sort_by_key(|saving| saving.hz.unwrap_or(u32::MAX));
    sum.ticks_per_s = per_second(sum.ticks, elapsed);
    sum.each = each(&sum.cost);
    (sum.ticks > 0).then_some(sum)
}

fn add(sum: &mut Option<TimeEstimate>, times: Option<TimeEstimate>) {
    if let Some(times) = times {
        *sum = Some(sum.unwrap_or_default().plus(times));
    }
}

#[cfg(test)]
mod tests;
