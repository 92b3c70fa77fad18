//! Estimates a beat's period and its confidence interval from the times of the beat's events.
//!
//! Two kinds of jitter give the same residuals but very different precision. If a timer fires on a
//! grid, each event is late by an independent amount, and the period is known to ~ √12·σ/n^1.5. If
//! a timer is rearmed at each event, each *interval* is off by an independent amount, and the
//! period is known only to ~ σ/√n. A drifting clock is between the two. The local level model
//! covers all three (Harvey 1989, ch. 2):
//!
//! ```text
//! t(k) = level(k) + k·P + white noise of variance σ²,   level(k+1) = level(k) + noise of λσ²
//! ```
//!
//! λ = 0 is the grid, and λ → ∞ is the rearmed timer. For each of many values of λ, the Kalman
//! filter yields the restricted likelihood, the slope P by generalised least squares, and its
//! standard error. If a beat is missing, the step to the next one is longer. After a restart, the
//! level starts afresh.
//!
//! # The interval
//! A few events do not determine λ, and the standard errors of the slopes differ by a factor of up
//! to n/√12. The estimate is therefore averaged over λ with the reference prior for a variance
//! ratio (Berger, De Oliveira and Sansó 2001, *J. Am. Stat. Assoc.* 96, 1361). This prior is the
//! square root of the information about λ in the restricted likelihood. Let dᵢ be the variances of
//! the random walk in the n − 2 directions orthogonal to level and slope, and rᵢ = dᵢ/(1 + λdᵢ).
//! The prior is √(½(Σrᵢ² − (Σrᵢ)²/(n − 2))). It vanishes where the data cannot distinguish λ from 0
//! or from ∞.
//!
//! A rearmed timer is at the upper end of that range. When the estimate is averaged over smaller λ
//! as well, the interval is right on average over λ but too narrow at that end: for ten events, it
//! covers 87.5 % instead of 95 %. Unless the likelihood rules out a rearmed timer, the result
//! therefore also covers the interval for such a timer, which is the interval of the mean of
//! independent intervals. In one train out of a hundred, the likelihood rules out a timer that is
//! in fact rearmed.
//!
//! The model assumes that all intervals have the same distribution. If there are two lengths, say 7
//! or 15 ticks (run-queue balancing), the model claims to know, to within 1 %, a period between
//! them that no interval has. If the mean of the one-slot intervals is further from the fitted
//! period than chance allows, the result therefore also covers that mean.
//!
//! Suppose that three in five intervals of a rearmed timer are within a quarter of their median,
//! and that their mean differs from the fitted period by more than chance allows. Then the
//! remaining intervals are not jitter: the timer was rearmed before it was due. An example is
//! `rcu_preempt`, which sleeps for two ticks and is woken early by the end of some grace periods.
//! The period is then the mean of the majority, because no interval equals the mean of all
//! intervals.

use super::assign::Entry;
use super::null::student;

/// Values of λ to try in addition to 0. Each λ is √10 to one of these powers, divided by 10. The
/// last one stands for ∞.
const POWERS: std::ops::RangeInclusive<i32> = -22..=6;
/// Number of values of λ tried at the same time, which hides the latency of the divisions.
const LANES: usize = 4;
/// Value of λn² below which the prior is negligible.
const FROM: f64 = 0.1;
/// Maximum difference between the log likelihoods of the best λ and of a plausible one. This is
/// half the 99 % quantile of χ² with one degree of freedom.
const PLAUSIBLE: f64 = 3.317;
/// Minimum number of one-slot intervals for their mean to be considered.
const STEPS: usize = 20;
/// The mean of the one-slot intervals counts as different from the fitted period if it lies more
/// than this many of its standard errors outside the period's confidence interval.
const FAR: f64 = 4.0;
/// An interval counts as near the median if it differs from it by at most this share of the median.
const NEAR: f64 = 0.25;
/// If at least this share of the intervals is near the median, the others are attributed to early
/// rearming. It is well above half, so that a timer with two interval lengths does not qualify.
const MOST: f64 = 0.6;
/// Maximum number of groups that the beats are divided into. The beats in a group are averaged
/// before the fit.
const GROUPS: usize = 20_000;

/// Variance from reading a clock in whole nanoseconds, in ns².
const CLOCK: f64 = 0.083;

/// The period fitted to a train of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Period, ns.
    pub(super) period: f64,
    /// Half the width of the 95 % confidence interval, in ns.
    pub(super) margin: f64,
    /// Standard deviation of the events from their grid, in ns.
    pub(super) white: f64,
    /// Standard deviation of the change in phase per period, in ns.
    pub(super) walk: f64,
}

impl Fit {
    /// Returns whether `count` beats are enough to show that the timer is rearmed rather than on a
    /// grid.
    pub(super) fn is_rearmed(&self, count: usize) -> bool {
        self.walk * (count as f64).sqrt() > 2.0 * self.white
    }
}

/// An observation for the fit: the mean slot and the mean time of a group of `count` beats.
#[derive(Clone, Copy)]
struct Point {
    slot: f64,
    time: f64,
    count: f64,
    segment: u32,
}

/// Fits a period near `period` (ns) to the entries. Returns `None` if fewer than three degrees of
/// freedom remain.
///
/// `rounding` is the variance, in ns², from rounding each event or, if each event arms the next,
/// each interval. It is a lower bound for the estimated variance. By luck, a few events can all be
/// rounded alike, which makes the residuals smaller although the period is not known any better.
pub(super) fn fit(times: &[f64], entries: &[Entry], period: f64, rounding: f64) -> Option<Fit> {
    let points = points(times, entries, period);
    let segments = f64::from(points.last()?.segment) + 1.0;
    let freedom = points.len() as f64 - segments - 1.0;
    if freedom < 3.0 {
        return None;
    }
    let rounding = rounding.max(CLOCK);
    let prior = Prior::new(points.len());
    let lambdas = POWERS.map(|power| 10_f64.powf(f64::from(power) / 2.0 - 1.0));
    let is_tried = |lambda: &f64| lambda * (points.len() as f64).powi(2) >= FROM;
    let lambdas: Vec<f64> = [0.0].into_iter().chain(lambdas.filter(is_tried)).collect();
    let mut tried = Vec::new();
    for some in lambdas.chunks(LANES) {
        let lanes = std::array::from_fn(|lane| some[lane.min(some.len() - 1)]);
        let solved = solve(&points, lanes, freedom, rounding)?;
        tried.extend(solved.into_iter().take(some.len()));
    }
    let grid = tried.remove(0);
    let best = tried.iter().chain([&grid]);
    let best = best.max_by(|a, b| a.likelihood.total_cmp(&b.likelihood))?;
    // The values of λ form a geometric series, so dλ = λ·d(ln λ).
    let weight =
        |s: &Solution| (s.likelihood - best.likelihood).exp() * s.lambda * prior.density(s.lambda);
    let weights: Vec<f64> = tried.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mean = |value: &dyn Fn(&Solution) -> f64| {
        let parts = tried.iter().zip(&weights);
        parts.map(|(s, weight)| weight * value(s)).sum::<f64>() / total
    };
    let slope = mean(&|s| s.slope);
    let variance = mean(&|s| s.error.powi(2) + (s.slope - slope).powi(2));
    let quantile = student(freedom);
    let rearmed = tried
        .last()
        .filter(|s| s.likelihood >= best.likelihood - PLAUSIBLE);
    let covered = rearmed.map_or(0.0, |s| (s.slope - slope).abs() + quantile * s.error);
    let fit = Fit {
        period: period + slope,
        margin: covered.max(quantile * variance.sqrt()),
        white: best.variance.sqrt(),
        walk: (best.variance * best.lambda).sqrt(),
    };
    let steps = Steps::single(times, entries);
    let most = steps.most(entries.len().saturating_sub(1));
    Some(match most.filter(|most| most.are_off(&fit)) {
        Some(most) if fit.is_rearmed(points.len()) => most.fit(),
        _ if steps.are_off(&fit) => Fit {
            margin: (steps.mean - fit.period).abs(),
            ..fit
        },
        _ => fit,
    })
}

/// The intervals between beats that are one slot long.
struct Steps {
    all: Vec<f64>,
    /// Mean of the intervals, in ns. 0 if there are no intervals.
    mean: f64,
    /// Standard deviation, ns.
    spread: f64,
}

impl Steps {
    fn from_lengths(all: Vec<f64>) -> Self {
        let count = all.len().max(1) as f64;
        let mean = all.iter().sum::<f64>() / count;
        let squares: f64 = all.iter().map(|step| (step - mean).powi(2)).sum();
        Self {
            spread: (squares / (count - 1.0).max(1.0)).sqrt(),
            all,
            mean,
        }
    }

    fn single(times: &[f64], entries: &[Entry]) -> Self {
        let next = |pair: &&[Entry]| pair[1].slot == pair[0].slot + 1;
        let pairs = entries.windows(2).filter(next);
        Self::from_lengths(
            pairs
                .map(|pair| times[pair[1].event] - times[pair[0].event])
                .collect(),
        )
    }

    /// Returns the intervals near the median if they are the majority of all `intervals`, including
    /// those longer than a slot. The other intervals are then not jitter.
    fn most(&self, intervals: usize) -> Option<Self> {
        let mut all = self.all.clone();
        let middle = all.len() / 2;
        if all.len() < STEPS {
            return None;
        }
        let median = *all.select_nth_unstable_by(middle, f64::total_cmp).1;
        all.retain(|step| (step / median - 1.0).abs() < NEAR);
        (all.len() as f64 >= MOST * intervals as f64).then(|| Self::from_lengths(all))
    }

    fn error(&self) -> f64 {
        self.spread / (self.all.len().max(1) as f64).sqrt()
    }

    /// Returns whether the mean of the intervals is further from the fitted period than chance
    /// allows.
    fn are_off(&self, fit: &Fit) -> bool {
        let off = (self.mean - fit.period).abs();
        self.all.len() >= STEPS && off > fit.margin + FAR * self.error()
    }

    /// Returns the fit of a rearmed timer whose period is the mean of these intervals.
    fn fit(&self) -> Fit {
        let freedom = (self.all.len() as f64 - 1.0).max(1.0);
        Fit {
            period: self.mean,
            margin: student(freedom) * self.error(),
            white: 0.0,
            walk: self.spread.max(CLOCK.sqrt()),
        }
    }
}

/// Reference prior for λ, for beats that are evenly spaced.
struct Prior {
    /// Variances of the components of the random walk. The white noise has a variance of 1.
    walk: Vec<f64>,
}

impl Prior {
    fn new(count: usize) -> Self {
        let pi = std::f64::consts::PI;
        let walk = (1..count.saturating_sub(1)).map(|j| {
            // These are the variances of a detrended Brownian motion. They follow from the
            // multiples of 2π and the roots of tan(x/2) = x/2.
            let x = pi * (j as f64 + 1.0);
            let x = if j % 2 == 0 { x - 4.0 / x } else { x };
            0.25 / (0.5 * x / count as f64).sin().powi(2)
        });
        Self {
            walk: walk.collect(),
        }
    }

    fn density(&self, lambda: f64) -> f64 {
        let (mut sum, mut squares) = (0.0, 0.0);
        for d in &self.walk {
            let r = d / (1.0 + lambda * d);
            (sum, squares) = (sum + r, squares + r * r);
        }
        let information = squares - sum * sum / self.walk.len().max(1) as f64;
        (0.5 * information).max(0.0).sqrt()
    }
}

/// Converts the entries to deviations from a grid with this `period`. If there are many entries,
/// they are averaged in groups.
fn points(times: &[f64], entries: &[Entry], period: f64) -> Vec<Point> {
    let size = entries.len().div_ceil(GROUPS).max(1);
    let middle = entries.get(entries.len() / 2).map_or(0, |e| e.slot);
    let mut points = Vec::with_capacity(entries.len() / size + 8);
    for run in entries.chunk_by(|a, b| a.segment == b.segment) {
        for group in run.chunks(size) {
            let count = group.len() as f64;
            let slot = group.iter().map(|e| (e.slot - middle) as f64).sum::<f64>() / count;
            let time = group
                .iter()
                .map(|e| times[e.event] - e.slot as f64 * period)
                .sum::<f64>()
                / count;
            points.push(Point {
                slot,
                time,
                count,
                segment: group[0].segment,
            });
        }
    }
    points
}

struct Solution {
    lambda: f64,
    slope: f64,
    error: f64,
    variance: f64,
    likelihood: f64,
}

/// Sums of the Kalman filter for [`LANES`] values of λ.
#[derive(Default)]
struct Filter {
    xx: [f64; LANES],
    xy: [f64; LANES],
    yy: [f64; LANES],
    log_det: [f64; LANES],
    state: [f64; LANES],
    level_x: [f64; LANES],
    level_y: [f64; LANES],
}

/// Fits the slope by generalised least squares for each λ. The Kalman filter whitens the times and
/// the slot numbers. The slope is the regression of the innovations of the times on those of the
/// slot numbers.
fn solve(
    points: &[Point],
    lambdas: [f64; LANES],
    freedom: f64,
    rounding: f64,
) -> Option<[Solution; LANES]> {
    let mut sums = Filter::default();
    let (mut steady, mut logs) = ([1.0; LANES], [0.0; LANES]);
    let mut last: Option<Point> = None;
    for &point in points {
        let noise = 1.0 / point.count;
        match last.filter(|l| l.segment == point.segment) {
            // The first observation is all that is known about a new level.
            None => {
                sums.state = [noise; LANES];
                sums.level_x = [point.slot; LANES];
                sums.level_y = [point.time; LANES];
            }
            Some(before) => {
                let steps = (point.slot - before.slot).abs();
                let mut totals = [0.0; LANES];
                for (lane, (total, lambda)) in totals.iter_mut().zip(lambdas).enumerate() {
                    let predicted = sums.state[lane] + lambda * steps;
                    *total = predicted + noise;
                    let dx = point.slot - sums.level_x[lane];
                    let dy = point.time - sums.level_y[lane];
                    sums.xx[lane] += dx * dx / *total;
                    sums.xy[lane] += dx * dy / *total;
                    sums.yy[lane] += dy * dy / *total;
                    let gain = predicted / *total;
                    sums.level_x[lane] += gain * dx;
                    sums.level_y[lane] += gain * dy;
                    sums.state[lane] = predicted * (1.0 - gain);
                }
                // On evenly spaced slots, the filter soon reaches a steady state.
                #[expect(clippy::float_cmp, reason = "equal numbers have equal logarithms")]
                if totals != steady {
                    (steady, logs) = (totals, totals.map(f64::ln));
                }
                let log_det = sums.log_det.iter_mut().zip(logs);
                log_det.for_each(|(log_det, log)| *log_det += log);
            }
        }
        last = Some(point);
    }
    if sums.xx.iter().any(|&xx| xx <= 0.0) {
        return None;
    }
    Some(std::array::from_fn(|lane| {
        let (lambda, xx, xy) = (lambdas[lane], sums.xx[lane], sums.xy[lane]);
        let slope = xy / xx;
        let squares = (sums.yy[lane] - slope * xy).max(0.0);
        let variance = (squares / freedom).max(rounding / lambda.max(1.0));
        let evidence = freedom * variance.ln() + squares / variance + sums.log_det[lane] + xx.ln();
        Solution {
            lambda,
            slope,
            error: (variance / xx).sqrt(),
            variance,
            likelihood: -0.5 * evidence,
        }
    }))
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::Draws;

    use super::super::assign::Entry;
    use super::{Prior, fit};

    #[test]
    fn the_prior_matches_eigenvalues_of_the_detrended_walk() {
        // The expected values are λ·√information, computed with numpy from the eigenvalues of the
        // covariance of the random walk.
        for (count, lambda, expected) in [
            (6, 1.0 / 3.0, 0.0922),
            (6, 1.0, 0.1573),
            (6, 100.0, 0.0140),
            (40, 0.0075, 0.1858),
            (40, 1.0, 1.0605),
            (40, 10.0, 0.4247),
        ] {
            let density = lambda * Prior::new(count).density(lambda);
            assert!(
                (density - expected).abs() < 5e-4,
                "{count} {lambda}: {density}"
            );
        }
    }

    /// Counts how many of 2000 confidence intervals, each computed from `count` events, contain the
    /// true period. If `rearmed` is set, each interval between events has independent jitter;
    /// otherwise each event does.
    fn covered(count: usize, rearmed: bool) -> usize {
        let mut draws = Draws::new(count as u64 + u64::from(rearmed) * 1_000);
        let entry = |k| Entry {
            event: k,
            slot: i64::try_from(k).unwrap(),
            segment: 0,
            residual: 0.0,
        };
        let entries: Vec<Entry> = (0..count).map(entry).collect();
        let mut train = || {
            let mut walk = 0.0;
            let mut time = |k: usize| {
                let off = 1e4 * draws.normal();
                walk += off;
                1e8 * k as f64 + if rearmed { walk } else { off }
            };
            (0..count).map(&mut time).collect::<Vec<f64>>()
        };
        let covers_period = |_: &usize| {
            let fit = fit(&train(), &entries, 1e8, 0.0).unwrap();
            (fit.period - 1e8).abs() <= fit.margin
        };
        (0..2_000).filter(covers_period).count()
    }

    #[test]
    fn the_interval_covers_the_shorter_of_two_interval_lengths() {
        // A timer armed for either 7 or 15 ticks of 4 ms resembles one that has a period of 29.4 ms
        // and misses every other beat.
        let mut draws = Draws::new(5);
        let (mut times, mut entries) = (vec![0.0], Vec::new());
        let (mut at, mut slot) = (0.0, 0);
        let entry = |event, slot| Entry {
            event,
            slot,
            segment: 0,
            residual: 0.0,
        };
        entries.push(entry(0, 0));
        for event in 1..600 {
            let long = draws.normal() > 0.0;
            at += if long { 60e6 } else { 28e6 };
            slot += if long { 2 } else { 1 };
            times.push(at);
            entries.push(entry(event, slot));
        }
        let fit = fit(&times, &entries, 29.4e6, 4e6_f64.powi(2) / 12.0).unwrap();
        assert!((fit.period - 29.4e6).abs() < 0.3e6, "{fit:?}");
        assert!((fit.period - 28e6).abs() <= fit.margin, "{fit:?}");
        assert!(fit.margin < 2e6, "{fit:?}");
    }

    #[test]
    fn a_timer_rearmed_early_has_the_period_of_most_intervals() {
        // The timer takes two ticks of 4 ms or, in one case out of ten, only one. Each event is
        // slightly late.
        let mut draws = Draws::new(9);
        let (mut times, mut entries, mut at) = (Vec::new(), Vec::new(), 0.0);
        for event in 0..600 {
            times.push(at + 20e3 * draws.uniform());
            entries.push(Entry {
                event,
                slot: i64::try_from(event).unwrap(),
                segment: 0,
                residual: 0.0,
            });
            at += if draws.uniform() < 0.1 { 4e6 } else { 8e6 };
        }
        let mean = at / 600.0;
        assert!(mean < 7.7e6);
        let fit = fit(&times, &entries, mean, 4e6_f64.powi(2) / 12.0).unwrap();
        assert!((fit.period - 8e6).abs() <= fit.margin, "{fit:?}");
        assert!(fit.margin < 5e3, "{fit:?}");
    }

    #[test]
    fn confidence_intervals_hold_the_period_on_a_grid_and_when_rearmed() {
        for count in [5, 6, 10, 40] {
            for rearmed in [false, true] {
                let covered = covered(count, rearmed);
                // With a coverage of 95 %, fewer than 93.5 % of the 2000 intervals contain the
                // period only once in 1000 trials.
                assert!(covered >= 1_870, "{count} {rearmed}: {covered} of 2000");
            }
        }
    }
}
