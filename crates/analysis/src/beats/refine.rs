//! The period and its confidence interval from the times of a beat's events.
//!
//! Two kinds of jitter make the same residuals and very different periods. A timer that fires on a
//! grid (each event late by its own amount) has a period known to ~ √12·σ/n^1.5; one that is armed
//! anew from the last event (each *interval* off by its own amount) only to ~ σ/√n, and a clock that
//! drifts lies between. The local level model holds both (Harvey 1989, ch. 2):
//!
//!   t(k) = level(k) + k·P + white noise of variance σ²,   level(k+1) = level(k) + noise of λσ²
//!
//! λ = 0 is the grid, λ → ∞ the rearmed timer. Its restricted likelihood and, by the Kalman filter, the
//! generalised least squares slope P with its standard error are found for many λ. Missing beats are
//! longer steps; after a restart the level begins anew.
//!
//! # The interval
//! Few events leave λ open, and the slopes' standard errors lie a factor of n/√12 apart. So λ is
//! averaged over, with the reference prior of a ratio of variances (Berger, De Oliveira and Sansó 2001,
//! *J. Am. Stat. Assoc.* 96, 1361), the square root of its information in the restricted likelihood:
//! with dᵢ the variances of the walk's part in the n − 2 directions that neither level nor slope
//! touches, and rᵢ = dᵢ/(1 + λdᵢ), √(½(Σrᵢ² − (Σrᵢ)²/(n − 2))). It vanishes where the data cannot tell λ
//! from 0 or from ∞.
//!
//! A rearmed timer is the end of that range, and averaging over what is short of it makes an interval
//! that is right on average over λ and too narrow there: 87.5 % in place of 95 % for ten events. So where
//! the likelihood does not rule a rearmed timer out (a ratio that chance gives once in a hundred), the
//! interval also covers that timer's own, which is that of the mean of independent intervals.
//!
//! The model has one law for all intervals. Where there are two, say 7 ticks or 15 (the balancing of run queues),
//! it finds a period between them that none has, to within a hundredth. So the interval also covers the mean of
//! the intervals of one slot, where that is further off than chance makes it.
//!
//! Where three in five intervals of a rearmed timer are within a quarter of their median, and their mean is that far
//! off, the others are no jitter: the timer was armed anew before it was due, as that of `rcu_preempt`, which sleeps
//! for two ticks and is woken before the second by the end of some grace periods. Then the mean of the many is the
//! period: the mean of all is one that no interval has.

use super::assign::Entry;
use super::null::student;

/// Values of λ that are tried, as powers of √10 after a tenth, beside 0; the last stands for ∞.
const POWERS: std::ops::RangeInclusive<i32> = -22..=6;
/// λn² from which on the prior is no longer negligible.
const FROM: f64 = 0.1;
/// By how much the logarithm of the likelihood may be below its greatest for a λ not to be ruled out:
/// half the 99 % quantile of χ² with one degree of freedom.
const PLAUSIBLE: f64 = 3.317;
/// Intervals of one slot from which on their mean counts,
const STEPS: usize = 20;
/// and by how many standard errors it must be off.
const FAR: f64 = 4.0;
/// The share of the median within which intervals of one timer are,
const NEAR: f64 = 0.25;
/// and how many of all must be for the others to be none of its own: more than half by so much that a timer of two
/// lengths is none.
const MOST: f64 = 0.6;
/// Groups of beats that are averaged at most before the fit.
const GROUPS: usize = 20_000;

/// The variance of reading a clock in whole nanoseconds, ns².
const CLOCK: f64 = 0.083;

/// The period of a train.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// ns.
    pub(super) period: f64,
    /// Half the 95 % confidence interval, ns.
    pub(super) margin: f64,
    /// Standard deviation of an event around its grid, ns.
    pub(super) white: f64,
    /// Standard deviation by which each period adds to the phase, ns.
    pub(super) walk: f64,
}

impl Fit {
    /// Whether `count` beats tell a rearmed timer from a grid.
    pub(super) fn is_rearmed(&self, count: usize) -> bool {
        self.walk * (count as f64).sqrt() > 2.0 * self.white
    }
}

/// One observation: slot, time and the number of beats it averages.
#[derive(Clone, Copy)]
struct Point {
    slot: f64,
    time: f64,
    count: f64,
    segment: u32,
}

/// Fits a period near `period` (ns) to the entries; `None` with fewer than three degrees of freedom
/// left. Rounding makes `rounding` (ns²) of an event's variance, or of an interval's where the next
/// is armed by it: residuals may show less by luck, as all of a few events can be rounded alike, but
/// the period is not known better.
pub(super) fn fit(times: &[f64], entries: &[Entry], period: f64, rounding: f64) -> Option<Fit> {
    let points = points(times, entries, period);
    let segments = f64::from(points.last()?.segment) + 1.0;
    let freedom = points.len() as f64 - segments - 1.0;
    if freedom < 3.0 {
        return None;
    }
    let rounding = rounding.max(CLOCK);
    let grid = solve(&points, 0.0, freedom, rounding)?;
    let prior = Prior::new(points.len());
    let mut tried = Vec::new();
    for power in POWERS {
        let lambda = 10_f64.powf(f64::from(power) / 2.0 - 1.0);
        if lambda * (points.len() as f64).powi(2) >= FROM {
            tried.push(solve(&points, lambda, freedom, rounding)?);
        }
    }
    let best = tried.iter().chain([&grid]);
    let best = best.max_by(|a, b| a.likelihood.total_cmp(&b.likelihood))?;
    // The values of λ are a constant factor apart: a step of λ is λ times one of its logarithm.
    let weight =
        |s: &Solution| (s.likelihood - best.likelihood).exp() * s.lambda * prior.density(s.lambda);
    let weights: Vec<f64> = tried.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mean = |of: &dyn Fn(&Solution) -> f64| {
        let parts = tried.iter().zip(&weights);
        parts.map(|(s, weight)| weight * of(s)).sum::<f64>() / total
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

/// Intervals of one slot.
struct Steps {
    all: Vec<f64>,
    /// ns; 0 of none.
    mean: f64,
    /// Their standard deviation, ns.
    spread: f64,
}

impl Steps {
    fn of(all: Vec<f64>) -> Self {
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
        Self::of(
            pairs
                .map(|pair| times[pair[1].event] - times[pair[0].event])
                .collect(),
        )
    }

    /// Those near their median, where they are most of `intervals`, of one slot or more: what is left out is no
    /// jitter.
    fn most(&self, intervals: usize) -> Option<Self> {
        let mut all = self.all.clone();
        let middle = all.len() / 2;
        if all.len() < STEPS {
            return None;
        }
        let median = *all.select_nth_unstable_by(middle, f64::total_cmp).1;
        all.retain(|step| (step / median - 1.0).abs() < NEAR);
        (all.len() as f64 >= MOST * intervals as f64).then(|| Self::of(all))
    }

    fn error(&self) -> f64 {
        self.spread / (self.all.len().max(1) as f64).sqrt()
    }

    /// Whether their mean is further off a period than chance makes it.
    fn are_off(&self, fit: &Fit) -> bool {
        let off = (self.mean - fit.period).abs();
        self.all.len() >= STEPS && off > fit.margin + FAR * self.error()
    }

    /// A timer that is armed for their mean.
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

/// The reference prior of λ for evenly spaced beats.
struct Prior {
    /// The variances of the walk's part where the white noise's are 1.
    walk: Vec<f64>,
}

impl Prior {
    /// That of `count` beats.
    fn new(count: usize) -> Self {
        let pi = std::f64::consts::PI;
        let walk = (1..count.saturating_sub(1)).map(|j| {
            // Those of a detrended Brownian motion: multiples of 2π, and the roots of tan(x/2) = x/2.
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

/// The entries as deviations from a grid of `period`, averaged in groups where there are many.
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

/// Generalised least squares under one λ: the Kalman filter whitens the times and the slot numbers
/// alike, and the slope is the regression of the one innovation on the other.
fn solve(points: &[Point], lambda: f64, freedom: f64, rounding: f64) -> Option<Solution> {
    let (mut xx, mut xy, mut yy, mut log_det) = (0.0, 0.0, 0.0, 0.0);
    let (mut state, mut level_x, mut level_y) = (0.0, 0.0, 0.0);
    let mut last: Option<Point> = None;
    for &point in points {
        let noise = 1.0 / point.count;
        match last.filter(|l| l.segment == point.segment) {
            // Nothing is known of a new level but its first observation.
            None => (state, level_x, level_y) = (noise, point.slot, point.time),
            Some(before) => {
                let predicted = state + lambda * (point.slot - before.slot).abs();
                let total = predicted + noise;
                let (dx, dy) = (point.slot - level_x, point.time - level_y);
                xx += dx * dx / total;
                xy += dx * dy / total;
                yy += dy * dy / total;
                log_det += total.ln();
                let gain = predicted / total;
                level_x += gain * dx;
                level_y += gain * dy;
                state = predicted * (1.0 - gain);
            }
        }
        last = Some(point);
    }
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let squares = (yy - slope * xy).max(0.0);
    let variance = (squares / freedom).max(rounding / lambda.max(1.0));
    let likelihood = -0.5 * (freedom * variance.ln() + squares / variance + log_det + xx.ln());
    Some(Solution {
        lambda,
        slope,
        error: (variance / xx).sqrt(),
        variance,
        likelihood,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::Draws;

    use super::super::assign::Entry;
    use super::{Prior, fit};

    #[test]
    fn the_prior_agrees_with_eigenvalues_of_the_detrended_walk() {
        // By a decomposition of the walk's covariance (numpy), for n = 6 and 40; λ·√information.
        for (count, lambda, expected) in [
            (6, 1.0 / 3.0, 0.0922),
            (6, 1.0, 0.1573),
            (6, 100.0, 0.0140),
            (40, 0.0075, 0.1858),
            (40, 1.0, 1.0605),
            (40, 10.0, 0.4247),
        ] {
            let told = lambda * Prior::new(count).density(lambda);
            assert!((told - expected).abs() < 5e-4, "{count} {lambda}: {told}");
        }
    }

    /// How many of 2000 intervals hold the period of `count` events, of which each is off by itself, or
    /// each interval.
    fn held(count: usize, rearmed: bool) -> usize {
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
        let is_held = |_: &usize| {
            let fit = fit(&train(), &entries, 1e8, 0.0).unwrap();
            (fit.period - 1e8).abs() <= fit.margin
        };
        (0..2_000).filter(is_held).count()
    }

    #[test]
    fn a_period_between_two_lengths_of_intervals_is_not_known_better_than_they_agree() {
        // A timer that is armed for 7 ticks of 4 ms or for 15, as one of 29.4 ms that misses every other beat.
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
        // Not more than that, either.
        assert!(fit.margin < 2e6, "{fit:?}");
    }

    #[test]
    fn a_timer_that_is_armed_before_it_is_due_has_the_period_of_most_intervals() {
        // Two ticks of 4 ms, and one in ten after one; each a little late.
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
    fn intervals_hold_the_period_whether_events_are_off_or_intervals() {
        for count in [5, 6, 10, 40] {
            for rearmed in [false, true] {
                let held = held(count, rearmed);
                // At 95 %, fewer than 93.5 % of 2000 come once in 1000 times.
                assert!(held >= 1_870, "{count} {rearmed}: {held} of 2000");
            }
        }
    }
}
