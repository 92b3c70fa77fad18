//! Compares two arms turn by turn.

use crate::judge::{mean, student_chance, variance};

/// Result of a turn: a share, and the number of items that it is a share of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) share: f64,
    /// Number of items, or `None` if the share was measured rather than counted.
    all: Option<f64>,
}

impl Turn {
    pub(super) const NONE: Self = Self {
        share: 0.0,
        all: Some(0.0),
    };

    pub(super) fn of_count(part: u64, all: u64) -> Self {
        Self {
            share: part as f64 / all.max(1) as f64,
            all: Some(all as f64),
        }
    }

    pub(super) fn of_share(share: f64) -> Self {
        Self { share, all: None }
    }
}

/// Returns the two-sided probability that chance alone makes the mean difference between two arms
/// at least as large as observed, based on the differences within each round. Returns `None` if `a`
/// is not the larger one, or if there are fewer than two rounds.
pub(super) fn difference(a: &[Turn], b: &[Turn]) -> Option<f64> {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a.share - b.share).collect();
    let (rounds, mean) = (differences.len(), mean(&differences));
    if rounds < 2 || mean <= 0.0 {
        return None;
    }
    let counted = of_counts(&a[..rounds]) + of_counts(&b[..rounds]);
    // Turns that happen to agree closely must not make the result look more certain than their
    // number of frames permits.
    let variance = (variance(&differences) / rounds as f64).max(counted);
    Some(student_chance(mean / variance.sqrt(), rounds as f64 - 1.0))
}

/// Returns the variance of the mean share that is due to the counts alone. Both hits and misses are
/// increased by one. Otherwise, a few items without a hit would seem to prove that the share is
/// zero.
fn of_counts(turns: &[Turn]) -> f64 {
    let counted = || {
        turns
            .iter()
            .filter_map(|turn| Some((turn.share, turn.all?)))
    };
    let all: f64 = counted().map(|(_, all)| all).sum();
    if counted().next().is_none() {
        return 0.0;
    }
    let part: f64 = counted().map(|(share, all)| share * all).sum();
    let likely = (part + 1.0) / (all + 2.0);
    likely * (1.0 - likely) / (all + 2.0)
}

#[cfg(test)]
mod tests {
    use super::{Turn, difference};

    #[test]
    fn a_difference_that_all_turns_agree_on_is_significant() {
        let turns_of = |late: &[u64]| -> Vec<Turn> {
            late.iter().map(|&late| Turn::of_count(late, 100)).collect()
        };
        let (few, many) = (turns_of(&[1, 0, 2, 1, 1]), turns_of(&[20, 22, 19, 25, 21]));
        assert!(difference(&many, &few).unwrap() < 1e-3);
        assert_eq!(difference(&few, &many), None);
        // A single bad turn must not be significant.
        assert!(difference(&turns_of(&[0, 0, 90, 0, 0]), &few).unwrap() > 0.2);
        // Even if the turns agree exactly, their limited number of frames leaves some doubt.
        assert!(difference(&turns_of(&[1; 5]), &turns_of(&[0; 5])).unwrap() > 0.05);
        assert_eq!(difference(&many[..1], &few[..1]), None);
    }
}
