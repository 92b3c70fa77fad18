//! From a rhythm to frames: when each was due.
//!
//! Only the loop knows when its frames are due, but a timer can be late and not early, so its
//! earliest wakeups tell. A loop on a grid is due on the grid that its period and its earliest
//! wakeups span; one that arms itself anew is due its shortest interval after the frame before. Of
//! a delay that all wakeups share nothing can be seen.

use ticktax_model::Nanos;
use ticktax_model::pace::Frame;

use super::watch::Run;
use crate::beats::Beat;

/// Of a number of wakeups, this share is taken to have been in time.
const EARLIEST: f64 = 0.1;
/// Wakeups to each side that say where the grid lies there: it may be shifted by a restart, and
/// drift by the error of its period.
const NEIGHBOURS: usize = 16;
/// How much before its slot a wakeup may come, in periods; later than a period less this, it
/// counts for the next slot.
const EARLY: f64 = 0.25;

/// The frames among `runs`, and the period that they are counted by. `looks` is as [`delays_add_up`] has it.
pub(crate) fn frames(runs: &[Run], beat: &Beat, looks: Nanos) -> (Nanos, Vec<Frame>) {
    if delays_add_up(runs, beat.period.value, looks) {
        rearmed(runs, beat.period.value)
    } else {
        on_grid(runs, beat.period.value, beat.first)
    }
}

/// Intervals over which delays are watched adding up.
const MANY: usize = 16;

/// Frames from which on delays of up to a nap each, that add up, are told from those within one: they are spread over
/// two naps by then.
const POLLS: usize = 100;

/// Whether each interval starts from the last wakeup, so that delays add up.
///
/// A beat knows [its rhythm](crate::beats::Beat::rhythm), but looks for any wandering at all, and
/// wakeups on the strictest grid wander a little: whether the CPU sleeps deeply changes slowly.
/// Here it matters whether all of a delay stays. If it does, the spread over 16 intervals is √16
/// times that over one; on a grid it is the same. The border is in between, at 2. The spread is the
/// middle one of the deviations, which stalls do not move.
///
/// A loop that naps until it is time is late by up to a nap, and by nearly as much as the time before where the period
/// is nearly a whole number of naps: on a grid as well, such delays seem to grow. But there they keep within one nap,
/// `looks`; 0 of a loop that sleeps until its frame is due.
pub(crate) fn delays_add_up(runs: &[Run], period: f64, looks: Nanos) -> bool {
    let mut residuals: Vec<f64> = Vec::with_capacity(runs.len());
    let mut last: Option<Nanos> = None;
    let mut off = 0.0;
    for run in runs {
        let Some(before) = last else {
            last = Some(run.woken);
            residuals.push(0.0);
            continue;
        };
        let interval = (run.woken - before).0 as f64;
        let slots = (interval / period).round();
        if slots >= 1.0 {
            off += interval - slots * period;
            residuals.push(off);
            last = Some(run.woken);
        }
    }
    let many = MANY.min(residuals.len() / 4);
    let polls = looks > Nanos::ZERO && residuals.len() >= POLLS;
    if many < 2 || polls && keep_within(&residuals, looks.0 as f64) {
        return false;
    }
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let spread = |over: usize| {
        let pairs = residuals.iter().zip(&residuals[over..]);
        let grown: Vec<f64> = pairs.map(|(a, b)| b - a).collect();
        // What all have grown by is the error of the period.
        let usual = middle(grown.clone());
        middle(grown.iter().map(|one| (one - usual).abs()).collect())
    };
    spread(many) > (many as f64).powf(0.25) * spread(1).max(1.0)
}

/// Whether four of five residuals are no further apart than `limit`, once the error of the period is taken out of
/// them: the straight line that fits them best.
fn keep_within(residuals: &[f64], limit: f64) -> bool {
    let count = residuals.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = residuals.iter().sum::<f64>() / count;
    let places = (0..residuals.len()).map(|place| place as f64 - middle);
    let (mut along, mut square) = (0.0, 0.0);
    for (place, residual) in places.clone().zip(residuals) {
        along += place * (residual - mean);
        square += place * place;
    }
    let slope = along / square;
    let mut left: Vec<f64> = places
        .zip(residuals)
        .map(|(place, residual)| residual - place * slope)
        .collect();
    left.sort_by(f64::total_cmp);
    let tenth = left.len() / 10;
    left[left.len() - 1 - tenth] - left[tenth] <= limit
}

fn frame(run: &Run, due: Nanos) -> Frame {
    Frame {
        due: due.min(run.began),
        began: run.began,
        ended: run.ended,
        cpu: run.cpu,
    }
}

/// A wakeup in its slot.
struct Placed<'a> {
    run: &'a Run,
    slot: i64,
    /// How long after the begin of the slot, as far as that is known before all are placed, ns.
    after: f64,
}

fn on_grid(runs: &[Run], period: f64, first: Nanos) -> (Nanos, Vec<Frame>) {
    let whole = Nanos(rounded(period));
    let mut placed: Vec<Placed<'_>> = Vec::new();
    let mut phase = 0.0;
    for run in runs {
        let time = (run.woken - first).0 as f64;
        let slot = rounded(((time - phase) / period + EARLY).floor());
        // One frame a slot: whatever else wakes the thread in it is none.
        if placed.last().is_some_and(|last| last.slot >= slot) {
            continue;
        }
        let after = time - slot as f64 * period;
        placed.push(Placed { run, slot, after });
        phase = earliest(&placed[placed.len().saturating_sub(2 * NEIGHBOURS)..]);
    }
    let mut frames = Vec::with_capacity(placed.len());
    let mut next_slot = None;
    for (i, one) in placed.iter().enumerate() {
        let to = (i + NEIGHBOURS + 1).min(placed.len());
        let phase = earliest(&placed[i.saturating_sub(NEIGHBOURS)..to]);
        let due = first + Nanos(rounded(one.slot as f64 * period + phase));
        // A frame that began late enough to serve a later slot leaves no other frame in that one.
        let free = next_slot.unwrap_or(one.slot).min(one.slot);
        let due = due.min(one.run.began) - Nanos((one.slot - free) * whole.0);
        let frame = frame(one.run, due);
        next_slot = Some(free + frame.dropped(whole) + 1);
        frames.push(frame);
    }
    (whole, frames)
}

/// Where in their slots the earliest of some wakeups lie, ns.
fn earliest(placed: &[Placed<'_>]) -> f64 {
    let mut after: Vec<f64> = placed.iter().map(|one| one.after).collect();
    after.sort_by(f64::total_cmp);
    low(&after).unwrap_or(0.0)
}

/// The element of a sorted list that a tenth of the others are not above.
fn low<T: Copy>(sorted: &[T]) -> Option<T> {
    let place = rounded((sorted.len() as f64 * EARLIEST).floor());
    sorted.get(usize::try_from(place).unwrap_or(0)).copied()
}

fn rearmed(runs: &[Run], period: f64) -> (Nanos, Vec<Frame>) {
    // Two wakeups closer than half a period are of one frame.
    let apart = Nanos(rounded(period / 2.0));
    let mut starts: Vec<&Run> = Vec::new();
    for run in runs {
        if starts
            .last()
            .is_none_or(|last| run.began - last.began >= apart)
        {
            starts.push(run);
        }
    }
    let mut intervals: Vec<Nanos> = starts
        .windows(2)
        .map(|pair| pair[1].began - pair[0].began)
        .collect();
    intervals.sort_unstable();
    let shortest = low(&intervals).unwrap_or(Nanos(rounded(period)));
    let mut frames: Vec<Frame> = Vec::with_capacity(starts.len());
    for run in starts {
        let due = frames.last().map(|last| last.began + shortest);
        frames.push(frame(run, due.unwrap_or(run.woken)));
    }
    (shortest, frames)
}

fn rounded(value: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a time of a recording, or a slot of it"
    )]
    let whole = value.round() as i64;
    whole
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use super::super::watch::Run;
    use super::delays_add_up;

    fn runs(woken: impl Iterator<Item = i64>) -> Vec<Run> {
        let run = |woken| Run {
            woken: Nanos(woken),
            began: Nanos(woken),
            ended: Nanos(woken + 1_000),
            cpu: Nanos(1_000),
            on: Cpu(0),
            ended_idle: true,
        };
        woken.map(run).collect()
    }

    /// Four seconds of a precise grid: after 16 slots the error of the period that was found in
    /// them is more than the wakeups' own spread.
    #[test]
    fn an_error_of_the_period_is_no_delay_that_stays() {
        let late = [0, 700, 300, 1_100, 200, 900, 500];
        let slots = (0..80).zip(late.into_iter().cycle());
        let grid = runs(slots.map(|(k, late)| k * 20_000_000 + late));
        for error in [-400.0, 0.0, 400.0] {
            assert!(!delays_add_up(&grid, 20e6 + error, Nanos::ZERO), "{error}");
        }
    }

    /// Frames every 20 ms of loops that nap for 1.01 to 1.27 ms until it is time.
    #[test]
    fn delays_of_a_loop_that_naps_add_up_where_it_counts_from_the_frame_before() {
        let nap = 1_010_000;
        for stays in [false, true] {
            let (mut at, mut due) = (0_i64, 0_i64);
            let mut state = 1_u64;
            let mut woken = Vec::new();
            while woken.len() < 400 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                at += nap + i64::try_from(state >> 46).unwrap_or(0);
                if at >= due {
                    woken.push(at);
                    due = if stays { at } else { due } + 20_000_000;
                }
            }
            let frames = woken.len() as f64 - 1.0;
            let period = (woken[woken.len() - 1] - woken[0]) as f64 / frames;
            let looks = Nanos(nap + 130_000);
            let found = delays_add_up(&runs(woken.into_iter()), period, looks);
            assert_eq!(found, stays);
        }
    }

    #[test]
    fn delays_that_stay_add_up_whatever_the_period_is_taken_for() {
        let mut at = 0;
        let mut state = 1_u64;
        let rearmed = runs((0..400).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            at += 20_000_000 + i64::try_from(state >> 54).unwrap_or(0);
            at
        }));
        for error in [0.0, 500.0, 1_000.0] {
            assert!(
                delays_add_up(&rearmed, 20e6 + error, Nanos::ZERO),
                "{error}"
            );
        }
    }
}
