//! Finds beats one after another: describes the strongest beat, removes its events, then searches
//! the remaining events.

use super::assign::Entry;
use super::number::{index, whole};
use super::search::{AcceptedBeat, Search};
use super::{Beat, Events, FEWEST, Period, Rhythm, knowable, lengths_of};
use ticktax_model::Nanos;

/// Maximum number of beats reported per source.
const MAX: usize = 8;

/// Finds the beats among `events`, strongest first. Returns an empty list if [`knowable`] says that
/// no period can be found.
pub fn detect(events: &Events) -> Vec<Beat> {
    let Ok((shortest, longest)) = knowable(events) else {
        return Vec::new();
    };
    let mut search = Search::new(events, shortest, longest);
    let mut beats: Vec<Beat> = Vec::new();
    for _ in 0..MAX + 4 {
        let Some(found) = search.strongest() else {
            break;
        };
        let events_of_beat = search.members(&found);
        match beats.iter_mut().find(|b| is_multiple(&found, b)) {
            // Events of a removed beat that are left over repeat at multiples of its period.
            Some(beat) => {
                let ratio = beat.period.value / found.fit.period;
                if (ratio - 1.0).abs() < 0.3 {
                    beat.burst += events_of_beat.len() as f64 / beat.seen.max(1) as f64;
                }
            }
            None => beats.push(search.describe(&found, &events_of_beat)),
        }
        search.remove(&events_of_beat);
        if beats.len() >= MAX || search.times.len() < FEWEST {
            break;
        }
    }
    beats
}

/// Returns whether the period found is a small rational multiple of an earlier beat's period, to
/// within the precision of the measurement.
fn is_multiple(found: &AcceptedBeat, beat: &Beat) -> bool {
    let ratio = found.fit.period / beat.period.value;
    let slots = found.train.slots.min(beat.expected as f64);
    let tolerance = (0.3 / slots).max(0.002);
    let near = |r: f64| (r / r.round() - 1.0).abs() < tolerance && r.round() <= 12.0;
    let simple = [1.5, 2.0 / 3.0, 0.75, 4.0 / 3.0];
    (ratio > 0.5 && near(ratio))
        || (ratio < 2.0 && near(1.0 / ratio))
        || simple.iter().any(|s| (ratio / s - 1.0).abs() < tolerance)
}

impl Search<'_> {
    /// Returns the indices of the beat's events among the remaining times: one event per slot, plus
    /// the rest of its burst, which is at other phases of the same path.
    fn members(&self, found: &AcceptedBeat) -> Vec<usize> {
        const BINS: usize = 64;
        let train = &found.train;
        let mut mine = vec![false; self.times.len()];
        train.entries.iter().for_each(|e| mine[e.event] = true);
        let bin = |r: f64| index((r + 0.5).rem_euclid(1.0) * BINS as f64).min(BINS - 1);
        let mut counts = [0.0_f64; BINS];
        for (i, &(_, r)) in train.residuals.iter().enumerate() {
            if !mine[i] {
                counts[bin(r)] += 1.0;
            }
        }
        let smooth: [f64; BINS] = std::array::from_fn(|i| {
            counts[(i + BINS - 1) % BINS] + counts[i] + counts[(i + 1) % BINS]
        });
        let mut sorted = smooth;
        sorted.sort_by(f64::total_cmp);
        let base = sorted[BINS / 3];
        let beats = train.entries.len() as f64;
        let pulse = smooth.map(|c| c > base + 3.5 * (base + 1.0).sqrt() && c - base > 0.12 * beats);
        for (i, &(_, r)) in train.residuals.iter().enumerate() {
            let at = bin(r);
            if pulse[at] && counts[at] > base / 3.0 {
                mine[i] = true;
            }
        }
        (0..mine.len()).filter(|&i| mine[i]).collect()
    }

    fn remove(&mut self, members: &[usize]) {
        let mut gone = members.iter().copied().peekable();
        let kept: Vec<usize> = (0..self.times.len())
            .filter(|i| gone.next_if(|g| g == i).is_none())
            .collect();
        self.times = kept.iter().map(|&i| self.times[i]).collect();
        self.origin = kept.iter().map(|&i| self.origin[i]).collect();
        self.cut();
    }

    fn describe(&self, found: &AcceptedBeat, members: &[usize]) -> Beat {
        let AcceptedBeat {
            train, fit, alarm, ..
        } = found;
        let lengths: Vec<Nanos> = members
            .iter()
            .filter_map(|&i| self.events.durations.get(self.origin[i]).copied())
            .collect();
        let total: i64 = lengths.iter().map(|d| d.0).sum();
        let rearmed = fit.walk > 0.3 * fit.white;
        let jitter = if rearmed {
            fit.walk.hypot(fit.white)
        } else {
            fit.white
        };
        let seen = train.entries.len();
        let holes = u32::try_from(self.stretches.len() - 1).unwrap_or(u32::MAX);
        Beat {
            period: Period::new(fit.period, fit.margin),
            false_alarm: *alarm,
            first: self.first(found),
            seen: seen as u64,
            expected: whole(train.slots).unsigned_abs().max(seen as u64),
            jitter: Nanos(whole(jitter)),
            rhythm: if rearmed {
                Rhythm::Rearmed
            } else {
                Rhythm::Grid
            },
            restarts: train
                .entries
                .last()
                .map_or(0, |e| e.segment)
                .saturating_sub(holes),
            burst: members.len() as f64 / seen.max(1) as f64,
            lengths: lengths_of(lengths),
            share: total as f64 / self.seen.max(1.0),
        }
    }

    /// Returns when the first beat was due: the mean phase of the first few beats, extrapolated
    /// back to the start of the window.
    fn first(&self, found: &AcceptedBeat) -> Nanos {
        let segment = found.train.entries.first().map_or(0, |e| e.segment);
        let early: Vec<&Entry> = found
            .train
            .entries
            .iter()
            .take(16)
            .filter(|e| e.segment == segment)
            .collect();
        let period = found.fit.period;
        let phase = early
            .iter()
            .map(|e| self.times[e.event] - (e.slot - early[0].slot) as f64 * period)
            .sum::<f64>()
            / early.len().max(1) as f64;
        Nanos(self.begin + whole(phase.rem_euclid(period)))
    }
}
