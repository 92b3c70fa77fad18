//! The tests that hyperfine and netperf use to decide whether the run times of two arms differ. An
//! arm is one of two programs or settings that are compared.

use ticktax_experiment::statistics::{mean, student_chance, student_quantile, variance, welch};

/// Maximum number of runs in netperf's test, both arms together.
pub const NETPERF_RUNS: usize = 60;

/// Returns whether run times `a` and `b` differ according to Welch's t-test at the 5 % level, as in
/// hyperfine's script `welch_ttest.py`.
pub fn hyperfine_tells_apart(a: &[f64], b: &[f64]) -> bool {
    let (error, freedom) = welch((variance(a), a.len()), (variance(b), b.len()));
    student_chance((mean(b) - mean(a)) / error, freedom) < 0.05
}

/// Simulates netperf's test (`-I 99,5 -i 30,3`).
///
/// Runs arm A until its mean is known to ±2.5 % with 99 % confidence, but at least 3 and at most 30
/// times. Then runs arm B in the same way; B takes longer by the fraction `effect`. Returns whether
/// the confidence intervals of the two means are disjoint, and the total number of runs. `times`
/// contains the times of [`NETPERF_RUNS`] successive runs of A. B uses the runs that A does not
/// need, increased by `effect`.
pub fn netperf_tells_apart(times: &[f64], effect: f64) -> (bool, usize) {
    let (a, used) = until_narrow(times.iter().copied());
    let rest = times.iter().skip(used).map(|time| time * (1.0 + effect));
    let (b, more) = until_narrow(rest);
    (a.1 < b.0 || b.1 < a.0, used + more)
}

fn until_narrow(times: impl Iterator<Item = f64>) -> ((f64, f64), usize) {
    let mut taken = Vec::new();
    let mut interval = (f64::NEG_INFINITY, f64::INFINITY);
    for time in times.take(NETPERF_RUNS / 2) {
        taken.push(time);
        if taken.len() < 3 {
            continue;
        }
        let n = taken.len() as f64;
        let margin = student_quantile(0.995, n - 1.0) * (variance(&taken) / n).sqrt();
        let centre = mean(&taken);
        interval = (centre - margin, centre + margin);
        if margin <= 0.025 * centre {
            break;
        }
    }
    (interval, taken.len())
}
