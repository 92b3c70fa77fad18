//! Finds candidate periods among the lags, that is, the time differences between events.
//!
//! A histogram of the differences t(i+k) − t(i) for k = 1 … 8 shows a period directly. It does so
//! even if each interval starts at the previous event, which leaves no sharp line in the spectrum.
//! It also does so if other events, or further events of a burst, come between two beats.

use super::number::index;
use super::spectrum::Candidate;

/// Largest k in the differences t(i+k) − t(i).
const ORDERS: usize = 8;
const WIDTH: f64 = 0.01;
/// Number of events per sample. One sample starts at the first event, and one in the middle.
const SAMPLE: usize = 2048;
const KEPT: usize = 6;

/// Finds lags that are more frequent than their neighbours, strongest first. `times` must be sorted
/// and are in ns.
pub(super) fn peaks(times: &[f64], shortest: f64, longest: f64) -> Vec<Candidate> {
    let bins = bin(longest / shortest) + 2;
    let mut counts = vec![0.0_f64; bins];
    let middle = (times.len() / 2).max(SAMPLE).min(times.len());
    for sample in [
        &times[..middle.min(SAMPLE)],
        &times[middle..times.len().min(middle + SAMPLE)],
    ] {
        for order in 1..=ORDERS.min(sample.len().saturating_sub(1)) {
            for (a, b) in sample.iter().zip(&sample[order..]) {
                let lag = b - a;
                if lag >= shortest && lag <= longest {
                    counts[bin(lag / shortest)] += 1.0;
                }
            }
        }
    }
    let smooth: Vec<f64> = (0..bins).map(|i| mean(&counts, i, 2)).collect();
    let mut found = Vec::new();
    for i in 1..bins.saturating_sub(1) {
        let here = smooth[i];
        if here <= smooth[i - 1] || here < smooth[i + 1] {
            continue;
        }
        let around = mean(&counts, i, 25).max(0.04);
        // `here` is the mean of five bins. By chance alone, the sum of these bins is a Poisson
        // count.
        let strength = 5.0 * (here * (here / around).ln() - here + around);
        if here > around && strength > 1.5 {
            found.push(Candidate {
                period: shortest * (WIDTH * (i as f64 + 0.5)).exp(),
                strength,
            });
        }
    }
    found.sort_by(|a, b| b.strength.total_cmp(&a.strength));
    found.truncate(KEPT);
    found
}

/// Returns the bin of the histogram for a lag that is `ratio` times the shortest lag.
fn bin(ratio: f64) -> usize {
    index(ratio.max(1.0).ln() / WIDTH)
}

fn mean(counts: &[f64], at: usize, reach: usize) -> f64 {
    let part = &counts[at.saturating_sub(reach)..counts.len().min(at + reach + 1)];
    part.iter().sum::<f64>() / part.len() as f64
}
