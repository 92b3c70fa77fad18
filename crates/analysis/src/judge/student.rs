//! Means, variances, and Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Returns the mean, or 0 for an empty list.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the `p`-quantile of Student's t, or 1.96 if the distribution cannot be created.
pub fn student_quantile(p: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |law| law.inverse_cdf(p))
}

/// Returns the two-sided p-value of `t` with `freedom` degrees of freedom.
pub fn student_chance(t: f64, freedom: f64) -> f64 {
    let law = StudentsT::new(0.0, 1.0, freedom.max(1.0));
    law.map_or(1.0, |law| 2.0 * law.sf(t.abs()))
}

/// Returns the sample variance, or 0 for fewer than two values.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() - 1) as f64
}

/// Returns the standard error of the difference between two means, and its degrees of freedom
/// (Welch and Satterthwaite). Each argument is a variance and the number of values it was computed
/// from.
pub fn welch(a: (f64, usize), b: (f64, usize)) -> (f64, f64) {
    let squared_error = |(variance, n): (f64, usize)| (variance / n as f64, n as f64);
    let ((va, na), (vb, nb)) = (squared_error(a), squared_error(b));
    let error = (va + vb).sqrt();
    let freedom = if error > 0.0 {
        (va + vb).powi(2) / (va.powi(2) / (na - 1.0) + vb.powi(2) / (nb - 1.0))
    } else {
        na + nb - 2.0
    };
    (error, freedom)
}

#[cfg(test)]
mod tests {
    use super::{student_chance, student_quantile, variance, welch};

    #[test]
    fn quantiles_and_chances_agree_with_tables() {
        for (freedom, t) in [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
            assert!((student_quantile(0.975, freedom) - t).abs() < 1e-3);
            assert!((student_chance(-t, freedom) - 0.05).abs() < 1e-4);
        }
        assert!(student_chance(f64::INFINITY, 4.0) < 1e-12);
    }

    #[test]
    fn equal_samples_have_all_degrees_of_freedom() {
        assert!((variance(&[1.0, 2.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!(variance(&[7.0]).abs() < 1e-12);
        let (error, freedom) = welch((2.0, 8), (2.0, 8));
        assert!((error - 0.5_f64.sqrt()).abs() < 1e-12);
        assert!((freedom - 14.0).abs() < 1e-9);
        assert!((welch((0.0, 5), (0.0, 6)).1 - 9.0).abs() < 1e-12);
    }
}
