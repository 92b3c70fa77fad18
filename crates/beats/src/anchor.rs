//! Measures the period of a train (the events that belong to a beat) once its path (its phase over
//! time) is known.
//!
//! Choosing the event nearest to a path introduces a bias: among unrelated events, even a wrong
//! period finds some that confirm it. There are two remedies. First, a burst is represented by its
//! first event, even if another event in it is nearer to the path. Second, if the beats are on a
//! grid, the events are chosen again from the fitted grid until the choice is stable.
//!
//! Even so, if the grid is displaced, the choice partly follows it. The fraction by which it
//! follows is the *response*. The response widens the confidence interval, as the derivative of the
//! estimating equation does in the variance of any M-estimator (Huber 1967).

use std::ops::Range;

use super::FEWEST;
use super::assign::{Entry, Train};
use super::number::whole;
use super::refine::{self, Fit};
use super::steps;

/// Maximum number of rounds in which the events are chosen and the grid is fitted to them.
const ROUNDS: usize = 12;
/// Largest response r that is accounted for. The interval widens by a factor of 1 / (1 − r).
const STIFFEST: f64 = 0.8;
/// Maximum number of timer restarts in a train. Beyond that, the phase is assumed to wander in
/// large steps.
pub(super) const RESTARTS: u32 = 3;

/// Measures the period of a train near `period` (ns), and removes the entries of `train` that the
/// measurement does not use. `rounding` is the variance of the event times due to rounding, in ns².
/// Returns `None` if the train is too short.
pub(super) fn measure(
    times: &[f64],
    stretches: &[Range<usize>],
    train: &mut Train,
    period: f64,
    rounding: f64,
) -> Option<Fit> {
    let holes = u32::try_from(stretches.len().saturating_sub(1)).ok()?;
    let wandering = train.entries.last()?.segment > holes + RESTARTS;
    if wandering {
        let stretch = |event: usize| stretches.partition_point(|s| s.end <= event);
        for entry in &mut train.entries {
            entry.segment = u32::try_from(stretch(entry.event)).ok()?;
        }
    }
    let chain = chain(times, &train.entries, period);
    train
        .entries
        .iter_mut()
        .for_each(|e| e.event = onset(times, e.event, chain));
    train.entries.dedup_by_key(|e| e.event);
    if wandering || train.loose {
        steps::number(times, &mut train.entries, period);
    }
    steps::mark_restarts(times, &mut train.entries);
    let mut fit = refine::fit(times, &train.entries, period, rounding)?;
    if fit.is_rearmed(train.entries.len()) || train.entries.last()?.segment > 0 {
        // Some slots have an event only by chance. There, the event nearest to the path was chosen,
        // which makes the fit look too good, so widen the interval.
        fit.margin /= 1.0 - train.chance.min(0.5);
        return Some(fit);
    }
    for _ in 0..ROUNDS {
        let grid = FittedGrid::through(times, &train.entries, &fit);
        let entries = grid.choose(times, chain, train.gate);
        let Some(next) =
            refine::fit(times, &entries, fit.period, rounding).filter(|_| entries.len() >= FEWEST)
        else {
            break;
        };
        let moved = (next.period - fit.period).abs();
        fit = next;
        train.entries = entries;
        if moved < 0.02 * fit.margin {
            break;
        }
    }
    let mut displaced = fit;
    displaced.period += fit.margin;
    let grid = FittedGrid::through(times, &train.entries, &displaced);
    if let Some(answer) = refine::fit(
        times,
        &grid.choose(times, chain, train.gate),
        fit.period,
        rounding,
    ) {
        let response = (answer.period - fit.period) / fit.margin;
        fit.margin /= 1.0 - response.clamp(0.0, STIFFEST);
    }
    Some(fit)
}

/// Returns the maximum distance between neighbouring events in a burst, in ns, or 0 if each beat is
/// a single event.
fn chain(times: &[f64], entries: &[Entry], period: f64) -> f64 {
    let mut nearest: Vec<f64> = entries
        .iter()
        .map(|e| {
            let before = e
                .event
                .checked_sub(1)
                .map_or(f64::MAX, |i| times[e.event] - times[i]);
            let after = times
                .get(e.event + 1)
                .map_or(f64::MAX, |t| t - times[e.event]);
            before.min(after)
        })
        .collect();
    if nearest.is_empty() {
        return 0.0;
    }
    let rank = nearest.len() * 3 / 5;
    let typical = *nearest.select_nth_unstable_by(rank, f64::total_cmp).1;
    // Among many events, chance alone can give six in ten of them a neighbour at the distance
    // `typical`.
    let crowd = entries.len() as f64 * period / (times.len() as f64).max(1.0);
    if typical < 0.05 * period && typical < 0.15 * crowd.max(0.1 * period) {
        2.0 * typical
    } else {
        0.0
    }
}

/// Returns the index of the first event in the burst that contains `event`.
fn onset(times: &[f64], mut event: usize, chain: f64) -> usize {
    while event > 0 && times[event] - times[event - 1] <= chain {
        event -= 1;
    }
    event
}

/// A grid fitted to events: the time of its slot 0, its period, and the spread of the events around
/// it.
struct FittedGrid {
    origin: f64,
    period: f64,
    width: f64,
}

impl FittedGrid {
    /// Returns the grid with the fitted period that passes through the median of the entries.
    fn through(times: &[f64], entries: &[Entry], fit: &Fit) -> Self {
        // Fix the grid at the mean slot, so that a displaced period changes only its slope.
        let n = entries.len() as f64;
        let slot = entries.iter().map(|e| e.slot as f64).sum::<f64>() / n;
        let mut offsets: Vec<f64> = entries
            .iter()
            .map(|e| times[e.event] - (e.slot as f64 - slot) * fit.period)
            .collect();
        let middle = offsets.len() / 2;
        let centre = *offsets.select_nth_unstable_by(middle, f64::total_cmp).1;
        for offset in &mut offsets {
            *offset = (*offset - centre).abs();
        }
        let width = 1.4826 * *offsets.select_nth_unstable_by(middle, f64::total_cmp).1;
        Self {
            origin: centre - slot * fit.period,
            period: fit.period,
            width,
        }
    }

    /// Chooses the event nearest to each slot of the grid, then replaces it with the first event of
    /// its burst.
    fn choose(&self, times: &[f64], chain: f64, gate: f64) -> Vec<Entry> {
        let gate = (3.5 * self.width / self.period + 1e-7).min(gate);
        let mut entries: Vec<Entry> = Vec::new();
        for (event, time) in times.iter().enumerate() {
            let turns = (time - self.origin) / self.period;
            let residual = turns - turns.round();
            if residual.abs() > gate {
                continue;
            }
            let slot = whole(turns);
            let entry = Entry {
                event,
                slot,
                segment: 0,
                residual,
            };
            match entries.last_mut() {
                Some(last) if last.slot == slot => {
                    if residual.abs() < last.residual.abs() {
                        *last = entry;
                    }
                }
                _ => entries.push(entry),
            }
        }
        for entry in &mut entries {
            entry.event = onset(times, entry.event, chain);
        }
        entries
    }
}
