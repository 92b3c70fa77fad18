//! Determines when each frame in a rhythm was due.
//!
//! Only the loop itself knows when its frames are due. But a timer can only be late, never early,
//! so the earliest wake-ups reveal when that was. A loop on a grid is due on the grid defined by
//! its period and its earliest wake-ups. If a loop rearms its timer after each frame, a frame is
//! due one shortest interval after the previous one. A delay that all wake-ups share is invisible,
//! unless the thread's timer slack caused it: the recording then contains the expiry that the
//! thread requested.
//!
//! Many loops on a grid start a new grid after a frame that overran the next slot: they do not
//! catch up. The first frame on the new grid was due on the old one, unless the frame before it
//! overran only because it started late. Later frames are due on the new grid, so they are not
//! late.

use ticktax_model::Nanos;
use ticktax_model::pace::Frame;

use super::watch::ThreadRun;
use ticktax_beats::Beat;

/// Share of wake-ups assumed to have been on time.
const EARLIEST: f64 = 0.1;
/// Number of wake-ups on either side that determine the grid locally. The grid can shift when the
/// timer is restarted, and it drifts if the period is inaccurate.
const NEIGHBOURS: usize = 16;
/// A wake-up can precede its slot by at most this much, in periods. A wake-up this close to the
/// next slot counts for that slot.
const EARLY: f64 = 0.25;
/// Number of wake-ups that must be on a new grid.
const SETTLED: usize = 8;
/// Minimum distance between an old grid and a new one, in periods.
const SHIFTED: f64 = 0.03;

/// Finds the frames among `runs`. Returns the period used to count them, and the frames. For `nap`,
/// see [`delays_add_up`].
pub(crate) fn frames(runs: &[ThreadRun], beat: &Beat, nap: Nanos) -> (Nanos, Vec<Frame>) {
    if delays_add_up(runs, beat.period.value, nap) {
        rearmed(runs, beat.period.value)
    } else {
        on_grid(runs, beat.period.value, beat.first)
    }
}

/// Number of intervals over which the spread is measured to determine whether delays add up.
const MANY: usize = 16;

/// Minimum number of frames needed to distinguish delays that add up from delays within a single
/// nap. Over this many frames, delays of up to one nap each have spread over two naps.
const POLLS: usize = 100;

/// Returns whether each interval starts at the previous wake-up, so that delays add up.
///
/// A beat has its own test ([rhythm](ticktax_beats::Beat::rhythm)), but that one detects any drift.
/// Even wake-ups on the strictest grid drift a little, because the depth of the CPU's sleep changes
/// slowly. This function tests whether delays persist in full. If they do, the spread over 16
/// intervals is √16 times the spread over one. On a grid, the two spreads are equal. The limit on
/// their ratio is in between, at 2. The spread is the median absolute deviation, which stalls do
/// not affect.
///
/// A loop that naps until a frame is due is late by up to one nap. If its period is nearly a whole
/// number of naps, consecutive delays are similar, so they seem to add up even on a grid. On a
/// grid, however, they stay within one nap. `nap` is the length of a nap, or 0 for a loop that
/// sleeps until its frame is due.
pub(crate) fn delays_add_up(runs: &[ThreadRun], period: f64, nap: Nanos) -> bool {
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
    let naps = nap > Nanos::ZERO && residuals.len() >= POLLS;
    if many < 2 || naps && keep_within(&residuals, nap.0 as f64) {
        return false;
    }
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let spread = |over: usize| {
        let pairs = residuals.iter().zip(&residuals[over..]);
        let grown: Vec<f64> = pairs.map(|(a, b)| b - a).collect();
        // Growth that all pairs share is due to the error in the period.
        let usual = middle(grown.clone());
        middle(grown.iter().map(|growth| (growth - usual).abs()).collect())
    };
    spread(many) > (many as f64).powf(0.25) * spread(1).max(1.0)
}

/// Returns whether 80 % of the residuals are within `limit` of each other after subtracting the
/// best-fitting line, which is due to the error in the period.
fn keep_within(residuals: &[f64], limit: f64) -> bool {
    let count = residuals.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = residuals.iter().sum::<f64>() / count;
    let positions = (0..residuals.len()).map(|position| position as f64 - middle);
    let (mut along, mut square) = (0.0, 0.0);
    for (position, residual) in positions.clone().zip(residuals) {
        along += position * (residual - mean);
        square += position * position;
    }
    let slope = along / square;
    let mut left: Vec<f64> = positions
        .zip(residuals)
        .map(|(position, residual)| residual - position * slope)
        .collect();
    left.sort_by(f64::total_cmp);
    let tenth = left.len() / 10;
    left[left.len() - 1 - tenth] - left[tenth] <= limit
}

fn frame(run: &ThreadRun, due: Nanos) -> Frame {
    Frame {
        due: due.min(run.began),
        began: run.began,
        ended: run.ended,
        cpu: run.cpu,
    }
}

/// A wake-up assigned to a slot.
struct Placed<'a> {
    run: &'a ThreadRun,
    slot: i64,
    /// Time since the slot started, in ns. It is preliminary until all wake-ups are assigned.
    after: f64,
}

fn on_grid(runs: &[ThreadRun], period: f64, first: Nanos) -> (Nanos, Vec<Frame>) {
    let whole_period = Nanos(rounded(period));
    let mut placed: Vec<Placed<'_>> = Vec::new();
    let mut phase = 0.0;
    for run in runs {
        let time = (run.woken - first).0 as f64;
        let slot = rounded(((time - phase) / period + EARLY).floor());
        // A slot has only one frame. Additional wake-ups in the same slot are not frames.
        if placed.last().is_some_and(|last| last.slot >= slot) {
            continue;
        }
        let after = time - slot as f64 * period;
        placed.push(Placed { run, slot, after });
        phase = earliest(&placed[placed.len().saturating_sub(2 * NEIGHBOURS)..]);
    }
    let restarts = restarts(&placed, period, first);
    let mut frames: Vec<Frame> = Vec::with_capacity(placed.len());
    let mut next_slot = None;
    for (i, wakeup) in placed.iter().enumerate() {
        // The first frame on a new grid was due on the old one. If the frame before it overran only
        // because it started late, that delay has already been counted.
        let overran = |last: &Frame| last.ended - (last.began - last.due) > last.due + whole_period;
        let last = if frames.last().is_some_and(overran) {
            i
        } else {
            i + 1
        };
        let next = restarts.partition_point(|&restart| restart < last);
        let begin = next.checked_sub(1).map_or(0, |last| restarts[last]);
        let end = restarts.get(next).copied().unwrap_or(placed.len());
        let from = i.saturating_sub(NEIGHBOURS).max(begin);
        let to = (i + NEIGHBOURS + 1).min(end).max(from + 1);
        let phase = earliest(&placed[from..to]);
        let due = first + Nanos(rounded(wakeup.slot as f64 * period + phase));
        // If a frame starts so late that it also serves a later slot, that slot gets no other
        // frame.
        let free = next_slot.unwrap_or(wakeup.slot).min(wakeup.slot);
        let due = due.min(wakeup.run.began) - Nanos((wakeup.slot - free) * whole_period.0);
        let frame = frame(wakeup.run, due);
        next_slot = Some(free + frame.dropped(whole_period) + 1);
        frames.push(frame);
    }
    (whole_period, frames)
}

/// Returns the indices of the wake-ups at which the loop started a new grid, in order.
fn restarts(placed: &[Placed<'_>], period: f64, first: Nanos) -> Vec<usize> {
    let mut restarts = Vec::new();
    let mut begin = 0;
    for i in 1..placed.len() {
        let before = &placed[i.saturating_sub(NEIGHBOURS).max(begin)..i];
        let (Some(last), Some(settled)) = (before.last(), placed.get(i..i + SETTLED)) else {
            break;
        };
        let phase = earliest(before);
        let next_due = (last.slot + 1) as f64 * period + phase;
        let ran_over = (last.run.ended - first).0 as f64 > next_due;
        // The loop may also have slept for too long, perhaps because it was frozen.
        let is_after_stall = ran_over || placed[i].slot > last.slot + 1;
        if is_after_stall && (earliest(settled) - phase).abs() > SHIFTED * period {
            restarts.push(i);
            begin = i;
        }
    }
    restarts
}

/// Returns how long after the start of their slot the earliest wake-ups come, in ns.
fn earliest(placed: &[Placed<'_>]) -> f64 {
    let mut after: Vec<f64> = placed.iter().map(|wakeup| wakeup.after).collect();
    after.sort_by(f64::total_cmp);
    low(&after).unwrap_or(0.0)
}

/// Returns the 10 % quantile of a sorted list.
fn low<T: Copy>(sorted: &[T]) -> Option<T> {
    let place = rounded((sorted.len() as f64 * EARLIEST).floor());
    sorted.get(usize::try_from(place).unwrap_or(0)).copied()
}

fn rearmed(runs: &[ThreadRun], period: f64) -> (Nanos, Vec<Frame>) {
    // Wake-ups less than half a period apart belong to the same frame.
    let apart = Nanos(rounded(period / 2.0));
    let mut starts: Vec<&ThreadRun> = Vec::new();
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
        reason = "a time or slot number of a recording fits"
    )]
    let rounded = value.round() as i64;
    rounded
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use ticktax_model::pace::Frame;

    use super::super::watch::ThreadRun;
    use super::{delays_add_up, on_grid};

    fn runs(woken: impl Iterator<Item = i64>) -> Vec<ThreadRun> {
        let run = |woken| ThreadRun {
            woken: Nanos(woken),
            began: Nanos(woken),
            ended: Nanos(woken + 1_000),
            cpu: Nanos(1_000),
            on: Cpu(0),
            ended_idle: true,
        };
        woken.map(run).collect()
    }

    /// Wake-ups are on a precise grid for four seconds. Over 16 slots, the error in the estimated
    /// period exceeds their spread.
    #[test]
    fn an_error_of_the_period_is_not_a_persistent_delay() {
        let late = [0, 700, 300, 1_100, 200, 900, 500];
        let slots = (0..80).zip(late.into_iter().cycle());
        let grid = runs(slots.map(|(k, late)| k * 20_000_000 + late));
        for error in [-400.0, 0.0, 400.0] {
            assert!(!delays_add_up(&grid, 20e6 + error, Nanos::ZERO), "{error}");
        }
    }

    /// A loop that is stopped for a while either keeps its grid or starts a new one at the end of
    /// the late frame. Only the stopped frames are late.
    #[test]
    fn frames_on_a_new_grid_are_not_late() {
        const PERIOD: i64 = 20_000_000;
        let ways = [(false, false), (false, true), (true, false), (true, true)];
        for (restarts, is_asleep) in ways {
            let (mut due, mut all) = (0, Vec::new());
            for number in 0..300 {
                let stopped = if number % 50 == 49 { 67_000_000 } else { 0 };
                let began = due + stopped;
                let ended = began + 3_000_000;
                all.push(ThreadRun {
                    woken: Nanos(if is_asleep { began } else { due }),
                    began: Nanos(began),
                    ended: Nanos(ended),
                    cpu: Nanos(3_000_000),
                    on: Cpu(0),
                    ended_idle: true,
                });
                due += PERIOD;
                if restarts && due < ended {
                    due = ended + PERIOD;
                }
                while due < ended {
                    due += PERIOD;
                }
            }
            let (_, frames) = on_grid(&all, 20e6, Nanos::ZERO);
            let late = |frame: &&Frame| frame.began - frame.due > Nanos::from_millis(4);
            assert_eq!(
                frames.iter().filter(late).count(),
                6,
                "restarts: {restarts}, asleep: {is_asleep}"
            );
        }
    }

    /// The loops have a frame every 20 ms, and nap for 1.01 to 1.27 ms at a time until it is due.
    #[test]
    fn delays_of_a_napping_loop_add_up_if_it_counts_from_the_previous_frame() {
        let nap = 1_010_000;
        for rearms in [false, true] {
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
                    due = if rearms { at } else { due } + 20_000_000;
                }
            }
            let frames = woken.len() as f64 - 1.0;
            let period = (woken[woken.len() - 1] - woken[0]) as f64 / frames;
            let nap_length = Nanos(nap + 130_000);
            let found = delays_add_up(&runs(woken.into_iter()), period, nap_length);
            assert_eq!(found, rearms);
        }
    }

    #[test]
    fn persistent_delays_add_up_for_any_estimate_of_the_period() {
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
