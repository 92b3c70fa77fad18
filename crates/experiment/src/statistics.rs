//! Statistics for small samples, whether published or measured.

mod least_squares;
mod quantile;
mod rank;
mod resample;

pub use least_squares::{dependencies, least_squares, left_over, norm};
pub use quantile::{QuantileRanks, difference_of_estimates};
pub use rank::{fisher_exact, mann_whitney, signed_rank, sorted_by_chance, spearman};
pub use resample::{mean_interval, mean_interval_at, means_interval};
pub use ticktax_analysis::judge::{mean, student_chance, student_quantile, variance, welch};

/// Returns the median, or 0 if the list is empty.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.get(half) {
        None => 0.0,
        Some(middle) if sorted.len() % 2 == 1 => *middle,
        Some(middle) => f64::midpoint(sorted[half - 1], *middle),
    }
}

/// Returns every choice of `k` items out of `n`, which is at most 20, each as a bit set.
pub fn choices(n: usize, k: usize) -> impl Iterator<Item = u32> {
    let all = 1_u32 << n.min(20);
    (0..all).filter(move |bits| bits.count_ones() as usize == k)
}

/// Fits a line to the points by least squares. Returns the line's value at 0 and its slope.
pub fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let xs: Vec<f64> = points.iter().map(|point| point.0).collect();
    let ys: Vec<f64> = points.iter().map(|point| point.1).collect();
    let (mx, my) = (mean(&xs), mean(&ys));
    let sxy: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    let sxx: f64 = xs.iter().map(|x| (x - mx).powi(2)).sum();
    let slope = if sxx == 0.0 { 0.0 } else { sxy / sxx };
    (my - slope * mx, slope)
}

#[cfg(test)]
mod tests {
    use super::{choices, line, median};

    #[test]
    fn choices_medians_and_lines() {
        assert_eq!(choices(6, 3).count(), 20);
        assert!((median(&[3.0, 1.0, 2.0, 9.0]) - 2.5).abs() < 1e-12);
        let (a, b) = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((a - 1.0).abs() < 1e-12 && (b - 2.0).abs() < 1e-12);
    }
}
