//! From beat to beat: how many periods a step is, and which steps are restarts.
//!
//! A path that may wander can lose or gain a period without a sign of it, and can lean over a restart
//! as if each period were a little longer. The steps themselves know better: a step is a whole number
//! of periods, give or take the jitter.

use super::anchor::RESTARTS;
use super::assign::Entry;

/// The least step off the beat that is a restart, in periods.
const MIN: f64 = 0.04;

/// Numbers the beats anew, each from the one before.
pub(super) fn number(times: &[f64], entries: &mut [Entry], period: f64) {
    for i in 1..entries.len() {
        let before = entries[i - 1];
        let step = ((times[entries[i].event] - times[before.event]) / period)
            .round()
            .max(1.0);
        entries[i].slot = before.slot + super::number::whole(step);
    }
}

/// Begins a new segment at each step far outside the others' spread; none when there are more such
/// steps than a timer is likely to be restarted.
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
    // Six standard deviations, by the median of the sizes.
    let limit = (6.0 * 1.4826 * median(&mut sizes)).max(MIN * period);
    let far: Vec<(usize, f64)> = entries
        .windows(2)
        .enumerate()
        .filter(|(_, p)| p[0].segment == p[1].segment)
        .map(|(i, p)| (i, off(p)))
        .filter(|(_, d)| d.abs() > limit)
        .collect();
    // A single event out of place makes two such steps, there and back.
    let lone = far.windows(2).all(|w| w[1].0 > w[0].0 + 2);
    // The first and the last step show nothing of what lies beyond them.
    let inside = far.iter().all(|f| f.0 > 1 && f.0 + 3 < entries.len());
    if far.len() > RESTARTS as usize || !lone || !inside {
        return;
    }
    for (at, _) in far {
        entries[at + 1..].iter_mut().for_each(|e| e.segment += 1);
    }
}

/// The middle value; 0 of none.
fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
