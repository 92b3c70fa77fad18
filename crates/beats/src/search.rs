//! Finds the strongest beat among the events that do not belong to a beat yet.

use std::borrow::Cow;
use std::ops::Range;

use super::anchor;
use super::assign::{self, Train};
use super::lattice::Lattice;
use super::number::index;
use super::refine::Fit;
use super::spectrum::{self, Candidate};
use super::track::{Folded, Score};
use super::trial::{FILL, LOOSE, Trial, drift_model};
use super::{Events, FEWEST, lags, null};
use ticktax_model::Nanos;

/// Maximum false-alarm probability of an accepted beat.
const ALARM: f64 = 1e-3;
/// Maximum false-alarm probability of an accepted beat that was found by the test for a few regular
/// intervals ([`null::clean`]). The test runs once per source.
const ALARM_CLEAN: f64 = 5e-3;
/// Maximum spread of an accepted beat's events around the path, in periods.
const WIDEST: f64 = 0.21;
/// Maximum share of slots that may have an event by chance. With more unrelated events, a path
/// always finds some that confirm a period.
const CROWDED: f64 = 0.8;
/// Number of slots in which candidate periods are compared.
const TRIAL_SLOTS: f64 = 1024.0;
/// Maximum number of times a period is replaced by one of its multiples.
const LONGER: u32 = 16;
/// Number of drift models tried. Each counts as a trial in the false-alarm probability.
const MANNERS: f64 = 12.0;

/// A beat that has passed all tests.
pub(super) struct AcceptedBeat {
    pub(super) train: Train,
    pub(super) fit: Fit,
    pub(super) alarm: f64,
}

pub(super) struct Search<'a> {
    pub(super) events: &'a Events,
    pub(super) begin: i64,
    pub(super) span: f64,
    pub(super) seen: f64,
    pub(super) shortest: f64,
    pub(super) longest: f64,
    /// Times of the remaining events, in ns from the start of the window.
    pub(super) times: Vec<f64>,
    /// For each remaining event, its index in the source's list of events.
    pub(super) origin: Vec<usize>,
    pub(super) stretches: Vec<Range<usize>>,
    /// The ticks that most of the remaining events are on; `None` if many events are between ticks.
    lattice: Option<Lattice>,
}

impl<'a> Search<'a> {
    pub(super) fn new(events: &'a Events, shortest: Nanos, longest: Nanos) -> Self {
        let begin = events.observed.first().map_or(0, |o| o.0.0);
        let mut search = Self {
            events,
            begin,
            span: events.span().0 as f64,
            seen: events.observed.iter().map(|o| (o.1.0 - o.0.0) as f64).sum(),
            shortest: shortest.0 as f64,
            longest: longest.0 as f64,
            times: events.starts.iter().map(|t| (t.0 - begin) as f64).collect(),
            origin: (0..events.starts.len()).collect(),
            stretches: Vec::new(),
            lattice: None,
        };
        search.cut();
        search
    }

    /// Splits the remaining times where the observation has holes.
    pub(super) fn cut(&mut self) {
        let place = |t: Nanos| {
            self.times
                .partition_point(|&x| x < (t.0 - self.begin) as f64)
        };
        self.stretches = self
            .events
            .observed
            .iter()
            .map(|&(from, to)| place(from)..place(to + Nanos(1)))
            .filter(|range| !range.is_empty())
            .collect();
        // Drop events outside the observed intervals, because other events near them may be
        // missing.
        let total: usize = self.stretches.iter().map(ExactSizeIterator::len).sum();
        if total != self.times.len() {
            let kept: Vec<usize> = self.stretches.iter().cloned().flatten().collect();
            self.times = kept.iter().map(|&i| self.times[i]).collect();
            self.origin = kept.iter().map(|&i| self.origin[i]).collect();
            let mut at = 0;
            for stretch in &mut self.stretches {
                let length = stretch.len();
                *stretch = at..at + length;
                at += length;
            }
        }
        let begin = self.begin as f64;
        let lattice = |tick| Lattice::find(&self.times, begin, tick);
        self.lattice = self.events.tick.and_then(lattice);
    }

    /// Returns the times that the evidence is computed from: the remaining times or, if there is a
    /// lattice, the nearest tick to each.
    fn weighed(&self) -> Cow<'_, [f64]> {
        self.lattice.map_or(Cow::Borrowed(&self.times), |lattice| {
            Cow::Owned(lattice.snap(&self.times))
        })
    }

    /// Returns the beat of the tick itself if nearly every tick has an event.
    fn every_tick(&self) -> Option<AcceptedBeat> {
        let lattice = self.lattice?;
        let chance = lattice.every_tick(&self.times, self.seen);
        let chance = chance.filter(|&chance| chance <= ALARM)?;
        let trial = Trial {
            lattice: None,
            ..self.trial(lattice.tick)
        };
        let best = trial.best(lattice.tick)?;
        let limit = self.longest * 1.05;
        let found = self.judge(&trial, best, Some(chance), LONGER)?;
        (found.fit.period < limit && lattice.is_tick(found.fit.period, found.train.slots))
            .then_some(found)
    }

    pub(super) fn strongest(&self) -> Option<AcceptedBeat> {
        if self.times.len() < FEWEST {
            return None;
        }
        if let Some(found) = self.every_tick() {
            return Some(found);
        }
        let rounding = self.lattice.map_or(0.0, |lattice| lattice.tick);
        if self.stretches.len() == 1
            && let Some((period, chance)) = null::clean(&self.times, rounding)
            && chance <= ALARM_CLEAN
            && period <= self.longest * 1.05
        {
            let trial = self.trial(period);
            let found = trial
                .best(period)
                .and_then(|t| self.judge(&trial, t, Some(chance), LONGER));
            if found.is_some() {
                return found;
            }
        }
        let ranked = self.ranked();
        let top = ranked.first()?.1;
        for &(period, score) in ranked.iter().take(5) {
            if score < 0.05 * top {
                break;
            }
            let trial = self.trial(period);
            let Some(best) = trial.best(period) else {
                continue;
            };
            let fundamental = trial.fundamental(best, self.longest * 1.05, self.shortest);
            if let Some(found) = self.judge(&trial, fundamental, None, LONGER) {
                return Some(found);
            }
        }
        None
    }

    /// Returns candidate periods with their preliminary scores, best first.
    fn ranked(&self) -> Vec<(f64, f64)> {
        let shortest = (0.4 * self.seen / self.times.len() as f64).max(self.shortest);
        let mut candidates = Vec::new();
        let add = |list: Vec<Candidate>, max: usize, all: &mut Vec<f64>| {
            for candidate in list.into_iter().take(max) {
                if all
                    .iter()
                    .all(|p: &f64| (p / candidate.period - 1.0).abs() > 5e-4)
                {
                    all.push(candidate.period);
                }
            }
        };
        add(
            spectrum::peaks(&self.times, self.span, shortest, self.longest),
            14,
            &mut candidates,
        );
        add(
            lags::peaks(&self.times, shortest, self.longest),
            6,
            &mut candidates,
        );
        let mut ranked: Vec<(f64, f64)> = candidates
            .into_iter()
            .filter_map(|period| {
                let trial = self.trial(period);
                let loose = trial.follow(&trial.fold(period)?, LOOSE);
                let folded = trial.fold(loose.corrected())?;
                let steady = trial.follow(&folded, drift_model(0.04, 8, 0.05));
                let best = if steady.score.nats > loose.score.nats {
                    &steady
                } else {
                    &loose
                };
                Some((best.corrected(), best.score.nats / trial.length))
            })
            .filter(|r| r.1 > 0.0)
            .collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    }

    /// Selects the events for comparing periods near `period`.
    fn trial(&self, period: f64) -> Trial {
        let wanted = TRIAL_SLOTS * period;
        let dense = self.times.len() as f64 * period / self.seen > 8.0;
        let mut pieces = Vec::new();
        let mut length = 0.0;
        let parts = if self.seen > 1.5 * wanted { 4 } else { 1 };
        let weighed = self.weighed();
        for stretch in &self.stretches {
            let times = &weighed[stretch.clone()];
            let (from, to) = (times[0], times[times.len() - 1]);
            if parts == 1 {
                length += if self.stretches.len() == 1 {
                    self.seen
                } else {
                    to - from
                };
                pieces.push(times.to_vec());
                continue;
            }
            let share = (to - from) / self.seen;
            // A short stretch becomes one piece, and a long one becomes four pieces that are far
            // apart.
            let count = if share > 0.5 { 4 } else { 1 };
            let part = (wanted * share / f64::from(count))
                .max(64.0 * period)
                .min(to - from);
            for i in 0..count {
                let first =
                    from + (to - from - part) * f64::from(i) / f64::from((count - 1).max(1));
                let range = times.partition_point(|&t| t < first)
                    ..times.partition_point(|&t| t <= first + part);
                length += part;
                pieces.push(times[range].to_vec());
            }
        }
        if dense {
            // An event less than a phase step after another one adds no information about the
            // phase.
            let step = period / 256.0;
            for piece in &mut pieces {
                piece.dedup_by_key(|t| index(*t / step));
            }
        }
        Trial {
            pieces,
            length,
            lattice: self.lattice,
        }
    }

    /// Follows, fits and tests a period over the whole window. Returns `None` if there is no beat
    /// with this period. If events are missing in a regular pattern of slots, a longer period is
    /// tested instead, up to `longer` times.
    fn judge(
        &self,
        trial: &Trial,
        found: Score,
        clean: Option<f64>,
        longer: u32,
    ) -> Option<AcceptedBeat> {
        let weighed = self.weighed();
        let stretches = self.stretches.iter();
        let all_times: Vec<&[f64]> = stretches.map(|s| &weighed[s.clone()]).collect();
        let rounding = trial.lattice.map_or(0.0, |lattice| lattice.rounding());
        let (drift_model, mut period) = (found.drift_model, found.period);
        let mut last = None;
        for _ in 0..2 {
            let folded = Folded::new(&all_times, period, trial.lattice);
            let track = folded.follow(drift_model);
            let mut train = assign::along(&self.times, &self.stretches, self.seen, &track);
            let fit = anchor::measure(&self.times, &self.stretches, &mut train, period, rounding)?;
            last = Some((track.score.nats, train, fit));
            if (fit.period / period - 1.0).abs() * (self.seen / fit.period) < 0.01 {
                break;
            }
            period = fit.period;
        }
        let (score, train, fit) = last?;
        let alarm = null::false_alarm(score, train.slots, self.longest / self.shortest, MANNERS);
        let alarm = clean.map_or(alarm, |c| c.min(alarm));
        if let Some(remaining) = longer.checked_sub(1)
            && let Some(factor) = every_other(&train)
            && let Some(best) = trial.best(fit.period * factor)
        {
            return self.judge(trial, best, clean, remaining);
        }
        let limit = if clean.is_some() { ALARM_CLEAN } else { ALARM };
        let ok = alarm <= limit
            && train.fill >= FILL
            && train.spread <= WIDEST
            && train.chance <= CROWDED
            && train.entries.len() >= FEWEST
            && fit.period <= self.longest * 1.05
            && fit.period >= self.shortest * 0.95
            && covers(&train);
        ok.then_some(AcceptedBeat { train, fit, alarm })
    }
}

/// Returns the factor by which the true period is longer than the tested one, if events are missing
/// in a regular pattern of slots; otherwise `None`.
fn every_other(train: &Train) -> Option<f64> {
    if train.fill > 0.62 || train.entries.len() < 8 || train.entries.last()?.segment > 0 {
        return None;
    }
    [2_i64, 3].into_iter().find_map(|factor| {
        let mut classes = [0_usize; 3];
        for entry in &train.entries {
            classes[usize::try_from(entry.slot.rem_euclid(factor)).unwrap_or(0)] += 1;
        }
        let max = classes.into_iter().max().unwrap_or(0);
        (max as f64 >= 0.85 * train.entries.len() as f64).then_some(factor as f64)
    })
}

/// Returns whether the beat is present in at least three of the four quarters of the window.
fn covers(train: &Train) -> bool {
    let quarters = train.parts.chunks(train.parts.len() / 4);
    quarters
        .filter(|q| q.iter().sum::<f64>() / q.len() as f64 >= 0.2)
        .count()
        >= 3
}
