//! Compares periods using part of the events, and chooses among the multiples of a period.

use super::lattice::Lattice;
use super::track::{DriftModel, Folded, Score, Track};

/// A beat must have an event in at least this share of its slots, not counting slots that have one
/// by chance.
pub(super) const FILL: f64 = 0.4;
/// A multiple of a period is preferred if it explains at least this share of the period's evidence.
/// Twice the true period explains less than half of the evidence. The true period explains as much
/// as its fractions do.
const AS_GOOD: f64 = 0.72;

/// The part of the events that is used to compare periods.
pub(super) struct Trial {
    /// Event times in the window, in ns, divided into pieces. No piece extends across a hole in the
    /// observation.
    pub(super) pieces: Vec<Vec<f64>>,
    /// Total observed time of all pieces, in ns.
    pub(super) length: f64,
    /// The lattice of ticks on which the event times lie. `None` if many of them lie between ticks.
    pub(super) lattice: Option<Lattice>,
}

impl Trial {
    /// Folds the pieces with `period`.
    pub(super) fn fold(&self, period: f64) -> Folded {
        let pieces = self.pieces.iter().map(Vec::as_slice);
        let pieces: Vec<&[f64]> = pieces.filter(|piece| !piece.is_empty()).collect();
        Folded::new(&pieces, period, self.lattice)
    }

    /// Follows the period of `folded` through the pieces. Returns `None` if too few slots have an
    /// event.
    pub(super) fn follow(&self, folded: &Folded, drift_model: DriftModel) -> Option<Track> {
        let track = folded.follow(self.shortened(folded.period(), drift_model));
        self.is_filled(&track.score).then_some(track)
    }

    /// Returns the score of the track that [`Self::follow`] returns.
    fn score(&self, folded: &Folded, drift_model: DriftModel) -> Option<Score> {
        let score = folded.score(self.shortened(folded.period(), drift_model));
        self.is_filled(&score).then_some(score)
    }

    /// Returns `drift_model` with shorter blocks if there are few slots.
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

    fn is_filled(&self, score: &Score) -> bool {
        score.occupied as f64 >= FILL * (self.length / score.period).floor()
    }

    /// Finds the best path for a period near `period`. Returns `None` if too few slots have an
    /// event.
    pub(super) fn best(&self, period: f64) -> Option<Score> {
        let loose = self.follow(&self.fold(period), drift_model(0.06, 4, 0.4))?;
        let folded = self.fold(loose.corrected());
        let mut scores = Vec::new();
        for width in [0.008, 0.025, 0.06, 0.12] {
            scores.extend(self.score(&folded, drift_model(width, 8, 0.05)));
        }
        for width in [0.02, 0.06] {
            scores.extend(self.score(&folded, drift_model(width, 4, 0.3)));
            scores.extend(self.score(&folded, drift_model(width, 2, 0.6)));
        }
        let better = |scores: Vec<Score>, best: Score| {
            let all = scores.into_iter().chain([best]);
            all.max_by(|a, b| a.score.total_cmp(&b.score))
        };
        let is_better = |score: &Score| score.score.total_cmp(&loose.score.score).is_gt();
        let (is_better, best) = (scores.iter().any(is_better), better(scores, loose.score)?);
        let track = if is_better {
            self.follow(&folded, best.drift_model)?
        } else {
            loose
        };
        let again = self.score(&self.fold(track.corrected()), best.drift_model);
        better(again.into_iter().collect(), best)
    }

    /// Returns the longest multiple or fraction of `best`'s period that explains the events about
    /// as well as the best of all these periods does.
    pub(super) fn fundamental(&self, best: Score, longest: f64, shortest: f64) -> Score {
        let mut current = best;
        for _ in 0..3 {
            let mut family = Vec::new();
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
                if period <= longest && period >= shortest {
                    family.extend(self.best(period));
                }
            }
            let top = family.iter().map(|t| t.score).fold(current.score, f64::max);
            if top <= 0.0 {
                break;
            }
            let before = current.period;
            let as_good = family.into_iter().filter(|t| t.score >= AS_GOOD * top);
            let longest = as_good.max_by(|a, b| a.period.total_cmp(&b.period));
            match longest {
                Some(other) if current.score < AS_GOOD * top || other.period > before => {
                    current = other;
                }
                _ => break,
            }
        }
        current
    }
}

/// Returns a drift model for a beat of `width` (in periods) with `block` slots per block. `ratio`
/// determines how readily the path moves. If there are few slots, [`Trial::follow`] shortens the
/// blocks.
pub(super) fn drift_model(width: f64, block: u32, ratio: f32) -> DriftModel {
    DriftModel {
        width,
        block,
        ratio,
    }
}
