//! The period and its confidence interval from the times of a beat's events.
//!
//! Two kinds of jitter make the same residuals and very different periods. A timer that fires on a
//! grid (each event late by its own amount) has a period known to ~ √12·σ/n^1.5; one that is armed
//! anew from the last event (each *interval* off by its own amount) only to ~ σ/√n, and a clock that
//! drifts lies between. The local level model holds both (Harvey 1989, ch. 2):
//!
//!   t(k) = level(k) + k·P + white noise of variance σ²,   level(k+1) = level(k) + noise of λσ²
//!
//! λ = 0 is the grid, λ → ∞ the rearmed timer. λ is found by restricted maximum likelihood, and the
//! Kalman filter gives the generalised least squares slope P with its standard error. Missing beats
//! are longer steps; after a restart the level begins anew.

use super::assign::Entry;
use super::null::student;

/// Values of λ that are tried, as powers of ten, beside 0.
const POWERS: std::ops::RangeInclusive<i32> = -20..=6;
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
    let mut tried = vec![solve(&points, 0.0, freedom, rounding)?];
    // At λ = 12/n² the walk adds as much to the slope's variance as the white noise.
    let relevant = 3.0 / (points.len() as f64).powi(2);
    for power in POWERS {
        let lambda = 10_f64.powf(f64::from(power) / 2.0 - 1.0);
        if lambda >= relevant {
            tried.push(solve(&points, lambda, freedom, rounding)?);
        }
    }
    let top = tried.iter().map(|s| s.likelihood).fold(f64::MIN, f64::max);
    // What is not known about λ is averaged over, every order of magnitude alike. Those that so few
    // events cannot tell from 0 are left out, or they would outweigh the others.
    let weight = |s: &Solution| (s.likelihood - top).exp();
    let total: f64 = tried.iter().map(weight).sum();
    let mean = |of: &dyn Fn(&Solution) -> f64| {
        tried.iter().map(|s| weight(s) * of(s)).sum::<f64>() / total
    };
    let slope = mean(&|s| s.slope);
    let variance = mean(&|s| s.error.powi(2) + (s.slope - slope).powi(2));
    let best = tried
        .iter()
        .max_by(|a, b| a.likelihood.total_cmp(&b.likelihood))?;
    Some(Fit {
        period: period + slope,
        margin: student(freedom) * variance.sqrt(),
        white: best.variance.sqrt(),
        walk: (best.variance * best.lambda).sqrt(),
    })
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
