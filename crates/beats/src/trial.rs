//! Compares periods using part of the events, and chooses among the multiples of a period.

use super::lattice::Lattice;
use super::phases::Density;
use super::track::{DriftModel, Folded, ROUNDING, Score, Track};

/// Minimum share of a beat's slots that must have an event, not counting slots that have one by
/// chance.
pub(super) const FILL: f64 = 0.4;
/// Minimum share of a period's evidence that one of its multiples must explain to be preferred.
/// Twice the true period explains less than half of the evidence, whereas the true period explains
/// as much as its fractions do.
const AS_GOOD: f64 = 0.72;

/// The part of the events used to compare periods.
pub(super) struct Trial {
    /// Event times in the window, in ns, divided into pieces. No piece extends across a hole in the
    /// observation.
    pub(super) pieces: Vec<Vec<f64>>,
    /// Total observed time of all pieces, in ns.
    pub(super) length: f64,
    /// The lattice of ticks that the event times lie on; `None` if many of them lie between ticks.
    pub(super) lattice: Option<Lattice>,
}

impl Trial {
    /// Folds the pieces with `period`; `None` if too few slots have an event.
    pub(super) fn fold(&self, period: f64) -> Option<Folded> {
        let pieces = self.pieces.iter().map(Vec::as_slice);
        let pieces: Vec<&[f64]> = pieces.filter(|piece| !piece.is_empty()).collect();
        let folded = Folded::new(&pieces, period, self.lattice);
        let is_filled = folded.occupied() as f64 >= FILL * (self.length / period).floor();
        is_filled.then_some(folded)
    }

    /// Follows the period of `folded` through the pieces.
    pub(super) fn follow(&self, folded: &Folded, drift_model: DriftModel) -> Track {
        folded.follow(self.shortened(folded.period(), drift_model))
    }

    /// Returns the score of the track that [`Self::follow`] returns, or `None` if it is below
    /// `least`, in nats.
    fn score(&self, folded: &Folded, drift_model: DriftModel, least: f64) -> Option<Score> {
        folded.score(self.shortened(folded.period(), drift_model), least)
    }

    /// Returns `drift_model`, with shorter blocks if there are few slots.
    fn shortened(&self, period: f64, drift_model: DriftModel) -> DriftModel {
        let slots = self.length / period;
        let max = [1, 2, 4, 8]
            .into_iter()
            .rev()
            .find(|&b| f64::from(b) * 6.0 <= slots)
            .unwrap_or(1);
        DriftModel {
            block: drift_model.block.min(max),
            ..drift_model
        }
    }

    /// Finds the best path for a period near `period`; `None` if too few slots have an event.
    pub(super) fn best(&self, period: f64) -> Option<Score> {
        let loose = self.follow(&self.fold(period)?, LOOSE);
        let (mut best, mut track) = (loose.score, loose);
        if let Some(folded) = self.fold(track.corrected()) {
            for drift_model in DRIFT_MODELS {
                let score = self.score(&folded, drift_model, best.nats);
                let score = score.filter(|score| score.nats > track.score.nats);
                best = score.unwrap_or(best);
            }
            if best.nats > track.score.nats {
                track = self.follow(&folded, best.drift_model);
            }
        }
        let again = self.fold(track.corrected());
        let again = again.and_then(|folded| self.score(&folded, best.drift_model, best.nats));
        let again = again.filter(|again| again.nats > best.nats);
        Some(again.unwrap_or(best))
    }

    /// Returns an upper bound on the score that [`Self::best`] returns for `period`, in nats.
    fn most(&self, period: f64) -> f64 {
        if self.lattice.is_some() {
            return f64::INFINITY;
        }
        let longer = period * (1.0 + Track::most_corrected(1));
        let blocks = DRIFT_MODELS.map(|model| self.shortened(longer, model).block);
        let block = blocks.into_iter().min().unwrap_or(1);
        // The period is corrected twice.
        let shorter = period * (1.0 - Track::most_corrected(block)).powi(2);
        let slots = self.length / shorter + 2.0 * self.pieces.len() as f64;
        let per_slot = DRIFT_MODELS.map(|model| Density::of_width(model.width).most());
        slots * per_slot.into_iter().fold(0.0, f64::max) + ROUNDING
    }

    /// Returns the longest multiple or fraction of `best`'s period that explains the events about
    /// as well as the best of all these periods does.
    pub(super) fn fundamental(&self, best: Score, longest: f64, shortest: f64) -> Score {
        let mut current = best;
        for _ in 0..3 {
            let (mut family, mut top) = (Vec::new(), current.nats);
            for factor in [
                2.0,
                3.0,
                4.0,
                5.0,
                6.0,
                7.0,
                8.0,
                0.5,
                1.0 / 3.0,
                1.5,
                2.0 / 3.0,
            ] {
                let period = current.period * factor;
                if period <= longest && period >= shortest && self.most(period) >= AS_GOOD * top {
                    family.extend(self.best(period));
                }
                top = family.last().map_or(top, |t: &Score| top.max(t.nats));
            }
            if top <= 0.0 {
                break;
            }
            let before = current.period;
            let as_good = family.into_iter().filter(|t| t.nats >= AS_GOOD * top);
            let longest = as_good.max_by(|a, b| a.period.total_cmp(&b.period));
            match longest {
                Some(other) if current.nats < AS_GOOD * top || other.period > before => {
                    current = other;
                }
                _ => break,
            }
        }
        current
    }
}

/// The drift model that determines the period for the others.
pub(super) const LOOSE: DriftModel = drift_model(0.06, 4, 0.4);

/// The other drift models that [`Trial::best`] compares.
const DRIFT_MODELS: [DriftModel; 8] = [
    drift_model(0.008, 8, 0.05),
    drift_model(0.025, 8, 0.05),
    drift_model(0.06, 8, 0.05),
    drift_model(0.12, 8, 0.05),
    drift_model(0.02, 4, 0.3),
    drift_model(0.02, 2, 0.6),
    drift_model(0.06, 4, 0.3),
    drift_model(0.06, 2, 0.6),
];

/// Returns a drift model for a beat of `width` (in periods) with `block` slots per block. `ratio`
/// determines how readily the path moves. If there are few slots, [`Trial::follow`] shortens the
/// blocks.
pub(super) const fn drift_model(width: f64, block: u32, ratio: f32) -> DriftModel {
    DriftModel {
        width,
        block,
        ratio,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::Draws;

    use super::{DRIFT_MODELS, LOOSE, Trial};

    /// Returns a trial with about 600 events. `jitter` is their standard deviation in periods of
    /// 1 ms.
    fn trial(jitter: f64) -> Trial {
        let mut draws = Draws::new(5);
        let mut times: Vec<f64> = (1..600)
            .map(|beat| 1e6 * (f64::from(beat) + jitter * draws.normal()))
            .collect();
        times.sort_by(f64::total_cmp);
        Trial {
            pieces: vec![times],
            length: 600e6,
            lattice: None,
        }
    }

    #[test]
    fn scores_below_the_limit_are_left_out_and_others_do_not_change() {
        for jitter in [0.01, 0.05, 0.2, 5.0] {
            let folded = trial(jitter).fold(1e6).unwrap();
            for model in DRIFT_MODELS.into_iter().chain([LOOSE]) {
                let nats = folded.follow(model).score.nats;
                for least in [nats - 1.0, nats, nats + 1e-9, nats + 1.0, 2.0 * nats.abs()] {
                    let score = folded.score(model, least).map(|score| score.nats.to_bits());
                    let expected = (nats >= least).then_some(nats.to_bits());
                    assert_eq!(score, expected, "{jitter} {model:?}");
                }
            }
        }
    }

    #[test]
    fn no_score_exceeds_its_bound() {
        for jitter in [0.0, 0.001, 0.05, 5.0] {
            let trial = trial(jitter);
            for period in [0.5, 1.0, 1.01, 2.0, 3.0, 8.0, 90.0] {
                let best = trial.best(1e6 * period).map_or(0.0, |best| best.nats);
                let most = trial.most(1e6 * period);
                assert!(best <= most, "{jitter} {period}: {best} {most}");
            }
        }
    }
}
