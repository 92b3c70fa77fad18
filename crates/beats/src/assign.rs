//! Assigns events to a beat: finds the train of events along a path (a phase over time), and how
//! many of the path's slots have an event.

use std::ops::Range;

use super::number::{index, whole};
use super::phases::PHASES;
use super::track::{Track, turn};

/// Maximum number of events for estimating the spread.
const SAMPLE: usize = 20_000;
/// exp(−x/2) is 0 for x larger than this.
const UNDERFLOW: f64 = 1_492.0;
/// Number of parts of the window in which the beat is examined separately.
pub(super) const PARTS: usize = 8;

/// One observed beat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Index of the beat's event in the list of times.
    pub(super) event: usize,
    /// Number of the beat's slot, counted from the start of the window.
    pub(super) slot: i64,
    /// Number of timer restarts before this beat.
    pub(super) segment: u32,
    /// Signed distance of the event from the path, in periods.
    pub(super) residual: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Train {
    /// The observed beats, ordered by slot. There is at most one per slot.
    pub(super) entries: Vec<Entry>,
    /// For each event, its slot and its signed distance from the path, in periods.
    pub(super) residuals: Vec<(i64, f64)>,
    /// Standard deviation of the events from the path, in periods.
    pub(super) spread: f64,
    /// Maximum distance from the path, in periods, at which an event counts as a beat.
    pub(super) gate: f64,
    /// Number of slots (periods) in the observed time.
    pub(super) slots: f64,
    /// Share of slots that have a beat, corrected for slots that have an event by chance.
    pub(super) fill: f64,
    /// `fill` in each part of the observed time.
    pub(super) parts: [f64; PARTS],
    /// Share of slots that would have an event by chance alone.
    pub(super) chance: f64,
    /// Whether the path was free to wander. If so, it may have lost or gained a period, and the
    /// slots must be counted again.
    pub(super) loose: bool,
}

/// Assigns events to the beat that `track` follows. `stretches` are the ranges of `times` that were
/// observed continuously. `seen` is the length of the observed time, in ns.
pub(super) fn along(times: &[f64], stretches: &[Range<usize>], seen: f64, track: &Track) -> Train {
    let placed = place(times, stretches, track);
    let (centre, spread) = spread(&placed, track.score.drift_model.width);
    let gate = (3.0 * spread + 0.012).min(0.3);
    let slots = (seen / track.score.period).max(1.0);
    let residuals: Vec<(i64, f64)> = placed
        .iter()
        .map(|&(slot, _, r)| recentre(slot, r - centre))
        .collect();
    let entries = nearest(&residuals, &placed, gate);
    let hits = |at: f64| {
        let mut last = i64::MIN;
        residuals
            .iter()
            .filter(|&&(slot, r)| {
                let (slot, r) = recentre(slot, r - at);
                let new = slot != last && r.abs() <= gate;
                if new {
                    last = slot;
                }
                new
            })
            .count() as f64
    };
    // Count the slots that have an event by chance, at phases away from the beat. The median of
    // three phases keeps another pulse of a burst from being mistaken for chance.
    let mut others = if gate < 0.16 {
        vec![hits(0.33), hits(0.5), hits(-0.33)]
    } else {
        vec![hits(0.5)]
    };
    others.sort_by(f64::total_cmp);
    let chance = (others[others.len() / 2] / slots).min(0.999);
    let net = |hit: f64, total: f64| ((hit / total).min(1.0) - chance) / (1.0 - chance);
    let mut parts = [0.0; PARTS];
    for entry in &entries {
        let at = part_of_window(times[entry.event], times, stretches, seen);
        parts[at] += 1.0;
    }
    let parts = parts.map(|hit| net(hit, slots / PARTS as f64));
    let loose = track.score.drift_model.ratio > 0.1;
    let fill = net(entries.len() as f64, slots);
    Train {
        entries,
        residuals,
        spread,
        gate,
        slots,
        fill,
        parts,
        chance,
        loose,
    }
}

/// Returns which part of the observed time contains `time`, as a number below [`PARTS`].
fn part_of_window(time: f64, times: &[f64], stretches: &[Range<usize>], seen: f64) -> usize {
    let mut passed = 0.0;
    let lengths: f64 = stretches
        .iter()
        .map(|s| times[s.end - 1] - times[s.start])
        .sum();
    for stretch in stretches {
        let (from, to) = (times[stretch.start], times[stretch.end - 1]);
        if time > to {
            passed += to - from;
        } else {
            passed += time - from;
            break;
        }
    }
    let (total, before) = if stretches.len() == 1 {
        (seen, time)
    } else {
        (lengths, passed)
    };
    index(before / total.max(1.0) * PARTS as f64).min(PARTS - 1)
}

/// Wraps a residual to at most half a period, and adjusts the slot accordingly.
fn recentre(slot: i64, residual: f64) -> (i64, f64) {
    let turns = residual.round();
    (slot + whole(turns), residual - turns)
}

/// Computes the slot, the segment and the distance from the path for every event.
fn place(times: &[f64], stretches: &[Range<usize>], track: &Track) -> Vec<(i64, u32, f64)> {
    let mut placed = Vec::with_capacity(times.len());
    let path = unwrap(track);
    let block = f64::from(track.score.drift_model.block);
    let mut at = 0;
    for &time in stretches.iter().flat_map(|s| &times[s.clone()]) {
        let turns = time / track.score.period;
        let number = whole(turns.floor()).div_euclid(i64::from(track.score.drift_model.block));
        while at + 1 < path.len() && path[at].block < number {
            at += 1;
        }
        let here = &path[at];
        let offset = turns / block - (here.block as f64 + 0.5);
        let neighbour = if offset < 0.0 {
            at.checked_sub(1)
        } else {
            Some(at + 1)
        };
        let neighbour = neighbour
            .and_then(|i| path.get(i))
            .filter(|n| n.segment == here.segment && (n.block - here.block).abs() <= 2);
        let phase = neighbour.map_or(here.phase, |n| {
            here.phase + (n.phase - here.phase) * offset / (n.block - here.block) as f64
        });
        let (slot, residual) = recentre(0, turns - phase);
        placed.push((slot, here.segment, residual));
    }
    placed
}

/// A block of the path, with its phase in periods and not wrapped.
struct PathBlock {
    block: i64,
    phase: f64,
    segment: u32,
}

fn unwrap(track: &Track) -> Vec<PathBlock> {
    let mut blocks: Vec<PathBlock> = Vec::with_capacity(track.path.len());
    let mut starts = track.starts.iter().skip(1).peekable();
    for (i, &(block, phase)) in track.path.iter().enumerate() {
        let new = starts.next_if(|&&start| start <= i).is_some();
        let first = match blocks.last() {
            None => (f64::from(phase) + 0.5) / PHASES as f64,
            Some(last) => {
                let moved = turn(phase, track.path[i - 1].1);
                let segment =
                    last.segment + u32::from(new || track.score.drift_model.is_restart(moved));
                let phase = last.phase + f64::from(moved) / PHASES as f64;
                blocks.push(PathBlock {
                    block,
                    phase,
                    segment,
                });
                continue;
            }
        };
        blocks.push(PathBlock {
            block,
            phase: first,
            segment: 0,
        });
    }
    blocks
}

/// Returns the centre and the standard deviation of the pulse of events around the path. They are
/// found by expectation maximisation, for a normal density on a uniform background (Dempster, Laird
/// and Rubin 1977).
fn spread(placed: &[(i64, u32, f64)], width: f64) -> (f64, f64) {
    let stride = placed.len() / SAMPLE + 1;
    let sample: Vec<f64> = placed.iter().step_by(stride).map(|p| p.2).collect();
    let (mut share, mut centre, mut sd) = (0.5, 0.0, (1.5 * width).max(0.012));
    for _ in 0..20 {
        let before = [share, centre, sd];
        let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
        for &r in &sample {
            let d = r - centre - (r - centre).round();
            let squared = (d / sd).powi(2);
            // The density is 0 here, and computing it would take longer than elsewhere.
            if squared > UNDERFLOW {
                continue;
            }
            let pulse = share / (sd * 2.506_628) * (-0.5 * squared).exp();
            let own = pulse / (pulse + 1.0 - share + 1e-12);
            sum += own;
            first += own * d;
            second += own * d * d;
        }
        if sum < 1.0 {
            break;
        }
        share = (sum / sample.len() as f64).clamp(0.01, 0.995);
        let shift = first / sum;
        centre += shift;
        sd = (second / sum - shift * shift)
            .max(1e-8)
            .sqrt()
            .clamp(2e-4, 0.3);
        #[expect(clippy::float_cmp, reason = "more rounds change nothing")]
        if before == [share, centre, sd] {
            break;
        }
    }
    (centre, sd)
}

/// Chooses, in each slot, the event nearest to the path if it is within `gate` of the path.
fn nearest(residuals: &[(i64, f64)], placed: &[(i64, u32, f64)], gate: f64) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (event, (&(slot, residual), &(_, segment, _))) in residuals.iter().zip(placed).enumerate() {
        if residual.abs() > gate {
            continue;
        }
        let entry = Entry {
            event,
            slot,
            segment,
            residual,
        };
        match entries.last_mut() {
            Some(last) if last.slot >= slot => {
                if residual.abs() < last.residual.abs() {
                    *last = entry;
                }
            }
            _ => entries.push(entry),
        }
    }
    entries
}
