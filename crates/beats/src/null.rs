//! Bounds what chance can produce, and computes the probability that a beat is due to chance.
//!
//! Three kinds of chance arrivals must not be mistaken for a beat:
//!
//! 1. **Poisson arrivals**, including those whose rate varies slowly. [`false_alarm`] takes
//!    Markov's bound on the likelihood ratio of the path ([`super::track`]), and multiplies it by
//!    the number of periods that can be distinguished and the number of drift models tried.
//! 2. **Renewal arrivals**, that is, independent intervals from a broad distribution (heavy tails,
//!    a gamma distribution, a minimum gap). Their phase is lost within a period or two, so no path
//!    can follow it: the expected log ratio of a narrow density around a path is below 0. Some
//!    trains are too short for this argument. For these, [`clean`] compares the spread of the
//!    intervals with [`BROAD`].
//! 3. **Clusters** at random times, with regular spacing inside. If a beat had the spacing within
//!    the clusters as its period, only few of its slots in the window would have an event. But a
//!    beat must fill a minimum share of all slots ([`super::trial::FILL`]).

use statrs::distribution::{DiscreteCDF, Hypergeometric};

/// Arrivals count as irregular if the coefficient of variation of their intervals is at least this,
/// which is the value for a gamma distribution with shape 11.
const BROAD: f64 = 0.3;
/// Maximum number of intervals that [`clean`] tests. With more, the evidence from following the
/// path is enough.
const FEW: usize = 64;
/// Minimum share of the time taken by the gaps between bursts. If the bursts take more time than
/// the gaps, they may be a train of events with a shorter period, and the gaps its missing events.
const APART: f64 = 0.5;

/// Bounds the probability that chance produces a path with this score (in nats) at any of the
/// periods searched. `slots` is the number of periods in the observed time, `range` the ratio of
/// the longest to the shortest period, and `manners` the number of drift models tried.
pub(super) fn false_alarm(score: f64, slots: f64, range: f64, manners: f64) -> f64 {
    // Two periods can be distinguished if they differ by a tenth of a turn over the window, or by
    // more than a path can drift.
    let apart = (0.1 / slots).max(0.002);
    let trials = (range.ln() / apart).max(1.0) * manners;
    (trials.ln() - score).exp().min(1.0)
}

/// Tests whether a few events are too regular to be due to chance. Returns the period (in ns) and
/// the larger of two probabilities: that Poisson arrivals are this regular, and that arrivals with
/// the narrowest distribution that counts as irregular are. A burst is represented by its first
/// event. Returns `None` if there are too few or too many intervals for this test, or if the bursts
/// fill most of the time, because the gaps can then be stalls of a source with a shorter period.
///
/// If events are rounded to ticks of `tick` ns, intervals with the same number of ticks can differ
/// from their true lengths by up to half a tick each. Their squared deviations are increased
/// accordingly.
pub(super) fn clean(times: &[f64], tick: f64) -> Option<(f64, f64)> {
    let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    // A gap is between two bursts if it is longer than a third of the longest gap. In a regular
    // train without missing beats, all such gaps are about one period long.
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    let is_between = |gap: &f64| *gap > longest / 3.0;
    let between: f64 = gaps.iter().copied().filter(is_between).sum();
    if between < APART * gaps.iter().sum::<f64>() {
        return None;
    }
    let mut onsets = vec![*times.first()?];
    onsets.extend(
        gaps.iter()
            .zip(&times[1..])
            .filter(|(gap, _)| is_between(gap))
            .map(|(_, t)| *t),
    );
    let n = onsets.len() - 1;
    if !(4..=FEW).contains(&n) {
        return None;
    }
    let mean = (onsets[n] - onsets[0]) / n as f64;
    let squares: f64 = onsets
        .windows(2)
        .map(|w| (w[1] - w[0] - mean).powi(2))
        .sum();
    let squares = squares + 0.25 * n as f64 * tick * tick;
    let spread = (squares / (n - 1) as f64).sqrt() / mean;
    let renewal = gamma_below(0.5 * (n - 1) as f64, 0.5 * squares / (BROAD * mean).powi(2));
    Some((mean, poisson_regular(n, spread).max(renewal)))
}

/// Returns an upper bound on the probability that `n` Poisson intervals with a given sum vary as
/// little as `spread`, their coefficient of variation. Given their sum, the intervals are uniform
/// on a simplex (Greenwood 1946), and those up to a given coefficient of variation form a ball in
/// it. The bound is loose if the ball extends beyond the simplex.
fn poisson_regular(n: usize, spread: f64) -> f64 {
    let n = n as f64;
    let dimension = n - 1.0;
    let radius = spread * (dimension / n).sqrt() / n.sqrt();
    let ball = 0.5 * dimension * std::f64::consts::PI.ln() + dimension * radius.max(1e-12).ln()
        - ln_gamma(0.5 * dimension + 1.0);
    let simplex = 0.5 * n.ln() - ln_gamma(n);
    (ball - simplex).exp().min(1.0)
}

/// Returns Chernoff's bound (1952) on the probability of at least `hit` successes in `all` trials,
/// if each succeeds with probability `share`. Returns 1 if the observed share does not exceed
/// `share`.
pub fn binomial_tail(hit: f64, all: f64, share: f64) -> f64 {
    let seen = (hit / all.max(1.0)).min(1.0);
    if seen <= share {
        return 1.0;
    }
    let term = |a: f64, b: f64| if a > 0.0 { a * (a / b).ln() } else { 0.0 };
    (-all * (term(seen, share) + term(1.0 - seen, 1.0 - share))).exp()
}

/// Returns the p-value of Fisher's one-sided exact test: the probability that chance places at
/// least this many members with the trait in the first group. Each group is given as the number of
/// members with and without the trait. Returns 1 if there is nothing to compare.
///
/// For given row and column sums, the count is hypergeometric (R. A. Fisher, JRSS 85 (1922) 87):
/// P(X ≥ a) = Σ C(r₁, k)·C(r₂, c₁ − k)/C(n, c₁), summed over k ≥ a.
pub fn fisher(group: [usize; 2], other: [usize; 2]) -> f64 {
    let [with, without, more, rest] = [group[0], group[1], other[0], other[1]].map(|n| n as u64);
    let law = Hypergeometric::new(with + without + more + rest, with + more, with + without);
    match (law, with.checked_sub(1)) {
        (Ok(law), Some(below)) => law.sf(below).min(1.0),
        _ => 1.0,
    }
}

/// Returns ln Γ(x) for x > 0 (Lanczos 1964, g = 5, six terms). The relative error is below 2e-10.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.001_208_650_973_866_179,
        -0.000_005_395_239_384_953,
    ];
    let base = x + 5.5;
    let series: f64 = TERMS
        .iter()
        .zip(1..)
        .map(|(c, i)| c / (x + f64::from(i)))
        .sum();
    (x + 0.5) * base.ln() - base
        + (2.506_628_274_631_000_5 * (1.000_000_000_190_015 + series) / x).ln()
}

/// Returns the lower regularised incomplete gamma function P(a, x), computed from its series.
fn gamma_below(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x > a + 20.0 * a.sqrt() + 20.0 {
        return 1.0;
    }
    let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
    while term > 1e-12 * sum {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    (sum * (a * x.ln() - x - ln_gamma(a)).exp()).min(1.0)
}

/// Returns the 97.5 % quantile of Student's t distribution, by Cornish-Fisher expansion. It is
/// accurate to 1 % for three or more degrees of freedom.
pub fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let z3 = Z.powi(3);
    let z5 = Z.powi(5);
    let z7 = Z.powi(7);
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::Draws;

    use super::{binomial_tail, clean, fisher, gamma_below, poisson_regular, student};

    #[test]
    fn the_special_functions_agree_with_tables() {
        assert!((student(5.0) - 2.5706).abs() < 0.01);
        assert!((student(30.0) - 2.0423).abs() < 0.001);
        // The 1 % quantile of χ² with 5 degrees of freedom is 0.554.
        assert!((gamma_below(2.5, 0.277) - 0.01).abs() < 2e-4);
    }

    #[test]
    fn the_binomial_bound_is_never_below_the_exact_tail() {
        for all in 1..=30_u32 {
            for share in [0.05_f64, 0.3, 0.7] {
                let mut term = (1.0 - share).powi(all.cast_signed());
                let mut exact = vec![term];
                for hit in 1..=all {
                    term *= f64::from(all - hit + 1) / f64::from(hit) * share / (1.0 - share);
                    exact.push(term);
                }
                for hit in 0..=all {
                    let tail: f64 = exact[hit as usize..].iter().sum();
                    let bound = binomial_tail(hit.into(), all.into(), share);
                    assert!(bound >= tail * 0.999_999, "{hit} of {all}, {share}");
                    // The bound must also be reasonably tight to be useful.
                    assert!(
                        bound <= tail * 20.0 || tail > 0.05,
                        "{hit} of {all}, {share}"
                    );
                }
            }
        }
    }

    #[test]
    fn fishers_test_matches_his_published_examples() {
        // By chance, the lady tasting tea gets at least 3 of 4 cups right with a probability of
        // 17/70.
        assert!((fisher([3, 1], [1, 3]) - 17.0 / 70.0).abs() < 1e-12);
        // Fisher's table of convictions of twins of criminals (The Logic of Inductive Inference,
        // 1935).
        assert!((fisher([10, 3], [2, 15]) - 619.0 / 1_330_665.0).abs() < 1e-9);
        assert!(fisher([2_000, 10], [0, 2_000]) < 1e-300);
        for empty in [
            fisher([0, 0], [3, 4]),
            fisher([0, 5], [3, 4]),
            fisher([5, 0], [5, 0]),
        ] {
            assert!((empty - 1.0).abs() < 1e-9, "{empty}");
        }
    }

    #[test]
    fn poisson_intervals_are_as_regular_as_predicted() {
        let mut draws = Draws::new(3);
        for (count, spread) in [(4_u32, 0.3), (5, 0.4), (8, 0.5)] {
            let mut alike = 0;
            for _ in 0..40_000 {
                let gaps: Vec<f64> = (0..count).map(|_| draws.exponential()).collect();
                let mean = gaps.iter().sum::<f64>() / f64::from(count);
                let squares: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
                let deviation = (squares / f64::from(count - 1)).sqrt();
                alike += u32::from(deviation <= spread * mean);
            }
            let seen = f64::from(alike) / 40_000.0;
            let predicted = poisson_regular(count as usize, spread);
            let error = (seen / 40_000.0).sqrt();
            assert!(
                (seen - predicted).abs() < 4.0 * error,
                "{count} {spread}: {seen} {predicted}"
            );
        }
    }

    #[test]
    fn a_metronome_is_not_chance_but_uneven_steps_can_be() {
        let metronome: Vec<f64> = (0..7).map(|k| f64::from(k) * 1e9).collect();
        assert!(clean(&metronome, 0.0).unwrap().1 < 1e-6);
        let uneven = [0.0, 0.7e9, 1.9e9, 2.8e9, 4.3e9, 5.0e9, 6.2e9];
        assert!(clean(&uneven, 0.0).unwrap().1 > 0.05);
    }
}
