//! How hyperfine and netperf tell two arms apart, by the times of runs.

use ticktax_experiment::statistics::{mean, student_chance, student_quantile, variance, welch};

/// Runs of both of netperf's arms at the most.
pub const NETPERF_RUNS: usize = 60;

/// Welch's t test at 5 %, which the script `welch_ttest.py` beside hyperfine asks of two of its results.
pub fn hyperfine_tells_apart(a: &[f64], b: &[f64]) -> bool {
    let (error, freedom) = welch((variance(a), a.len()), (variance(b), b.len()));
    student_chance((mean(b) - mean(a)) / error, freedom) < 0.05
}

/// Runs of A until their mean is known to ±2.5 % at 99 % (`-I 99,5 -i 30,3`), then as many of B as that takes, which takes
/// longer by `effect`; whether their intervals have nothing in common, and how many runs that took. `times` are what
/// [`NETPERF_RUNS`] runs of A take, one after the other.
pub fn netperf_tells_apart(times: &[f64], effect: f64) -> (bool, usize) {
    let (a, used) = until_narrow(times.iter().copied());
    let rest = times.iter().skip(used).map(|it| it * (1.0 + effect));
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
