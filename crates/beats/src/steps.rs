//! Steps from one beat to the next: how many periods each one spans, and which of them are timer
//! restarts.
//!
//! A path that wanders can lose or gain a period unnoticed. It can also treat a restart as if each
//! period were slightly longer. The steps are more reliable, because each is a whole number of
//! periods, apart from the jitter.

use super::anchor::RESTARTS;
use super::assign::Entry;

/// Minimum deviation of a step that counts as a restart, in periods.
const MIN: f64 = 0.04;

/// Renumbers the slots by each beat's distance from the previous one.
pub(super) fn number(times: &[f64], entries: &mut [Entry], period: f64) {
    for i in 1..entries.len() {
        let before = entries[i - 1];
        let step = ((times[entries[i].event] - times[before.event]) / period)
            .round()
            .max(1.0);
        entries[i].slot = before.slot + super::number::whole(step);
    }
}

/// Assumes that the timer was restarted at each step that deviates far more than the others, and
/// starts a new segment there. Does nothing if there are more such steps than plausible restarts.
pub(super) fn mark_restarts(times: &[f64], entries: &mut [Entry]) {
    let length = |pair: &[Entry]| times[pair[1].event] - times[pair[0].event];
    let slots = |pair: &[Entry]| (pair[1].slot - pair[0].slot) as f64;
    let mut each: Vec<f64> = entries
        .windows(2)
        .filter(|p| p[0].segment == p[1].segment)
        .map(|p| length(p) / slots(p))
        .collect();
    if each.len() < 6 {
        return;
    }
    let period = median(&mut each);
    let off = |pair: &[Entry]| length(pair) - slots(pair) * period;
    let mut sizes: Vec<f64> = entries.windows(2).map(|p| off(p).abs()).collect();
    // The limit is six standard deviations, estimated from the median absolute deviation.
    let limit = (6.0 * 1.4826 * median(&mut sizes)).max(MIN * period);
    let far: Vec<(usize, f64)> = entries
        .windows(2)
        .enumerate()
        .filter(|(_, p)| p[0].segment == p[1].segment)
        .map(|(i, p)| (i, off(p)))
        .filter(|(_, d)| d.abs() > limit)
        .collect();
    // If a single event is misplaced, two steps in a row deviate, in opposite directions.
    let lone = far.windows(2).all(|w| w[1].0 > w[0].0 + 2);
    // Several steps before and after a restart must confirm it.
    let inside = far.iter().all(|f| f.0 > 1 && f.0 + 3 < entries.len());
    if far.len() > RESTARTS as usize || !lone || !inside {
        return;
    }
    for (at, _) in far {
        entries[at + 1..].iter_mut().for_each(|e| e.segment += 1);
    }
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
