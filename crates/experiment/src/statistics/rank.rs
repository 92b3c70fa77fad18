//! Rank tests, which use only the order of the values, so that a single outlier cannot decide the
//! result.

use statrs::function::erf::erfc;
use statrs::function::factorial::ln_factorial;

use super::student_chance;

/// Maximum product of the total number of values and the size of the smaller sample for counting
/// all choices. This limits the work to 32 million additions.
const COUNTED: usize = 4_000;
/// Maximum number of differences for counting all combinations of signs.
const SIGNED: usize = 200;

/// Returns twice the rank of each value. Ranks start at 1, and equal values share their mean rank.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|&i, &j| values[i].total_cmp(&values[j]).is_eq()) {
        for &place in equal {
            ranks[place] = 2 * below + equal.len() + 1;
        }
        below += equal.len();
    }
    ranks
}

/// Returns the two-sided p-value of the Mann–Whitney test (Mann and Whitney 1947), or 1 if either
/// sample is empty.
///
/// If the total number of values, multiplied by the size of the smaller sample, is at most 4,000,
/// every way to draw the smaller sample is counted. The test is then exact, even with ties. For
/// larger samples, the normal approximation is used, with corrections for ties and continuity
/// (Lehmann 1975, 1.4).
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let all: Vec<f64> = few.iter().chain(many).copied().collect();
    if few.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(&all);
    let statistic: usize = ranks[..few.len()].iter().sum();
    let middle = few.len() * (all.len() + 1);
    let off = statistic.abs_diff(middle);
    if all.len() * few.len() <= COUNTED {
        counted_rank_sum(&ranks, few.len(), middle, off)
    } else {
        normal_rank_sum(&ranks, few.len(), off)
    }
}

/// Returns the fraction of all choices of `few` ranks whose sum differs from `middle` by at least
/// `off`.
fn counted_rank_sum(ranks: &[usize], few: usize, middle: usize, off: usize) -> f64 {
    let mut largest = ranks.to_vec();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let most: usize = largest[..few].iter().sum();
    // ways[j][s] is the number of ways to choose j of the ranks processed so far so that their sum
    // is s.
    let mut ways = vec![vec![0.0_f64; most + 1]; few + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for chosen in (0..few).rev() {
            let (fewer, more) = ways.split_at_mut(chosen + 1);
            let from = &fewer[chosen][..=most - rank.min(most)];
            for (to, from) in more[0][rank.min(most)..].iter_mut().zip(from) {
                *to += from;
            }
        }
    }
    let total: f64 = ways[few].iter().sum();
    let sums = ways[few].iter().enumerate();
    let as_far: f64 = sums
        .filter(|(sum, _)| sum.abs_diff(middle) >= off)
        .map(|(_, ways)| ways)
        .sum();
    (as_far / total).min(1.0)
}

fn normal_rank_sum(ranks: &[usize], few: usize, off: usize) -> f64 {
    let n = ranks.len() as f64;
    // Variance of the sum of doubled ranks when they are drawn without replacement. It accounts for
    // ties.
    let squares: f64 = ranks
        .iter()
        .map(|&rank| (rank as f64 - (n + 1.0)).powi(2))
        .sum();
    let few = few as f64;
    let variance = few * (n - few) / (n * (n - 1.0)) * squares;
    two_sided(off as f64 - 1.0, variance)
}

/// Returns the two-sided p-value of the signed-rank test (Wilcoxon 1945). Differences of 0 have
/// ranks but count for neither side (Pratt 1959).
///
/// If a coin toss decides the order within each pair and the arms do not differ, each sign is as
/// likely as its opposite. The test is then exact, even if the machine changes between pairs. For
/// up to 200 differences, all combinations of signs are counted. For more, the normal approximation
/// is used.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let sizes: Vec<f64> = differences
        .iter()
        .map(|difference| difference.abs())
        .collect();
    let ranks = doubled_ranks(&sizes);
    let signed = || {
        differences
            .iter()
            .zip(&ranks)
            .filter(|(difference, _)| **difference != 0.0)
    };
    let total: usize = signed().map(|(_, rank)| rank).sum();
    let positive: usize = signed()
        .filter(|(difference, _)| **difference > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    let off = (2 * positive).abs_diff(total);
    if signed().count() > SIGNED {
        let squares: f64 = signed().map(|(_, &rank)| (rank as f64).powi(2)).sum();
        return two_sided(off as f64 - 2.0, squares);
    }
    // chances[s] is the probability that the sum of the positive ranks is s, among the ranks
    // processed so far.
    let mut chances = vec![0.0_f64; total + 1];
    chances[0] = 1.0;
    let mut highest = 0;
    for (_, &rank) in signed() {
        highest += rank;
        for sum in (0..=highest).rev() {
            let with = if sum >= rank {
                chances[sum - rank]
            } else {
                0.0
            };
            chances[sum] = 0.5 * (chances[sum] + with);
        }
    }
    let sums = chances.iter().enumerate();
    let as_far: f64 = sums
        .filter(|(sum, _)| (2 * sum).abs_diff(total) >= off)
        .map(|(_, chance)| chance)
        .sum();
    as_far.min(1.0)
}

/// Returns the probability that a normal variable with mean 0 and this variance is at least `off`
/// away from 0.
fn two_sided(off: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    erfc(off.max(0.0) / (2.0 * variance).sqrt()).min(1.0)
}

/// Returns the rank correlation of two lists (Spearman 1904) and its two-sided p-value.
///
/// The p-value comes from Student's t distribution. It is at least 2/n!, the probability that a
/// random order is perfectly correlated. Returns `None` if there are fewer than four pairs, or if
/// all values in a list are equal.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let n = a.len().min(b.len());
    if n < 4 {
        return None;
    }
    let (a, b) = (doubled_ranks(&a[..n]), doubled_ranks(&b[..n]));
    let middle = (n + 1) as f64;
    let off = |rank: &usize| *rank as f64 - middle;
    let products: f64 = a.iter().zip(&b).map(|(x, y)| off(x) * off(y)).sum();
    let squares = |ranks: &[usize]| ranks.iter().map(|rank| off(rank).powi(2)).sum::<f64>();
    let size = (squares(&a) * squares(&b)).sqrt();
    if size <= 0.0 {
        return None;
    }
    let rho = (products / size).clamp(-1.0, 1.0);
    let freedom = n as f64 - 2.0;
    let t = rho * (freedom / (1.0 - rho * rho)).sqrt();
    let least = 2.0 * (-ln_factorial(n as u64)).exp();
    Some((rho, student_chance(t, freedom).max(least)))
}

/// Returns the two-sided p-value of Fisher's exact test for two success rates (Fisher 1935), each
/// given as the number of successes and the number of trials.
pub fn fisher_exact(a: (u64, u64), b: (u64, u64)) -> f64 {
    let ln_choose = |n: u64, k: u64| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let (successes, trials) = (a.0 + b.0, a.1 + b.1);
    let ln_chance = |first: u64| {
        ln_choose(a.1, first) + ln_choose(b.1, successes - first) - ln_choose(trials, successes)
    };
    let seen = ln_chance(a.0);
    let possible = successes.saturating_sub(b.1)..=successes.min(a.1);
    let as_rare = possible
        .map(ln_chance)
        .filter(|chance| *chance <= seen + 1e-7);
    as_rare.map(f64::exp).sum::<f64>().min(1.0)
}

/// Returns the probability that exchangeable values come in the order of `values` by chance, if
/// that order is monotonic. The order among equal values does not matter. Returns `None` if the
/// values are not monotonic, or if all of them are equal.
pub fn sorted_by_chance(values: &[f64]) -> Option<f64> {
    let ascends = values.is_sorted();
    let descends = values.is_sorted_by(|a, b| a >= b);
    if ascends == descends {
        return None;
    }
    let ties = values.chunk_by(|a, b| a.total_cmp(b).is_eq());
    let ln_ties: f64 = ties.map(|equal| ln_factorial(equal.len() as u64)).sum();
    Some((ln_ties - ln_factorial(values.len() as u64)).exp())
}

#[cfg(test)]
mod tests {
    use super::{
        counted_rank_sum, doubled_ranks, fisher_exact, mann_whitney, normal_rank_sum, signed_rank,
        sorted_by_chance, spearman,
    };
    use crate::statistics::choices;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn complete_separation_has_two_of_all_choices() {
        let p = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(near(p, 2.0 / 20.0), "{p}");
        assert!(near(mann_whitney(&[1.0, 4.0], &[2.0, 3.0]), 1.0));
        assert!(near(mann_whitney(&[], &[1.0]), 1.0));
        assert!(near(mann_whitney(&[1.0; 9], &[1.0; 7]), 1.0));
    }

    /// Computes the p-value from the definition of the test, by enumerating every choice.
    fn by_definition(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let ranks = doubled_ranks(&all);
        let middle = a.len() * (all.len() + 1);
        let sum = |bits: u32| -> usize {
            let places = (0..all.len()).filter(|place| bits >> place & 1 == 1);
            places.map(|place| ranks[place]).sum()
        };
        let off = sum((1 << a.len()) - 1).abs_diff(middle);
        let sums: Vec<usize> = choices(all.len(), a.len()).map(sum).collect();
        let as_far = sums.iter().filter(|sum| sum.abs_diff(middle) >= off);
        as_far.count() as f64 / sums.len() as f64
    }

    #[test]
    fn counting_agrees_with_the_definition_with_and_without_ties() {
        for (a, b) in [
            (&[1.0, 5.0, 2.5, 7.0][..], &[2.0, 3.0, 9.0, 11.0, 12.0][..]),
            (&[1.0, 1.0, 2.0], &[1.0, 2.0, 2.0, 3.0, 3.0, 3.0]),
            (&[4.0, 4.0, 4.0, 5.0, 1.0], &[5.0, 5.0, 4.0, 9.0]),
        ] {
            let (counted, truth) = (mann_whitney(a, b), by_definition(a, b));
            assert!(near(counted, truth), "{counted} {truth}");
            assert!(near(mann_whitney(b, a), truth));
        }
    }

    #[test]
    fn exact_and_normal_p_values_agree() {
        // Some of these samples are too large for bit sets, others for counting.
        let row = |n: usize, from: f64| -> Vec<f64> {
            (0..n).map(|i| from + ((i * 37) % n) as f64).collect()
        };
        for (n, shift) in [(15, 4.0), (40, 6.0), (40, 0.0)] {
            let (a, b) = (row(n, 0.0), row(n, shift));
            let all: Vec<f64> = a.iter().chain(&b).copied().collect();
            let ranks = doubled_ranks(&all);
            let sum: usize = ranks[..n].iter().sum();
            let (middle, few) = (n * (2 * n + 1), n);
            let off = sum.abs_diff(middle);
            let exact = counted_rank_sum(&ranks, few, middle, off);
            let normal = normal_rank_sum(&ranks, few, off);
            assert!((exact - normal).abs() < 0.004, "{n}: {exact} {normal}");
            assert!(near(
                mann_whitney(&a, &b),
                if n * n * 2 > 4_000 { normal } else { exact }
            ));
        }
        let (a, b) = (row(5_000, 0.0), row(5_000, 200.0));
        let p = mann_whitney(&a, &b);
        assert!(p > 1e-12 && p < 1e-3, "{p}");
    }

    #[test]
    fn signed_rank_p_values_are_exact() {
        // With all signs equal, the p-value is 2/2^n. Wilcoxon's table has 0.0488 for n = 10 and W
        // = 8.
        assert!(near(
            signed_rank(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
            2.0 / 64.0
        ));
        let mut differences: Vec<f64> = (1..=10).map(f64::from).collect();
        differences[7] *= -1.0;
        assert!((signed_rank(&differences) - 0.048_828_125).abs() < 1e-12);
        assert!(near(signed_rank(&[]), 1.0));
        assert!(near(signed_rank(&[0.0; 8]), 1.0));
        assert!(near(signed_rank(&[0.0, 0.0, 1.0]), 1.0));
        // The sizes of these samples are just below and just above the limit for counting.
        let row = |n: i32| -> Vec<f64> {
            (0..n)
                .map(|i| f64::from((i * 71) % n) - 0.44 * f64::from(n))
                .collect()
        };
        let (counted, normal) = (signed_rank(&row(200)), signed_rank(&row(201)));
        assert!((counted - normal).abs() < 0.01, "{counted} {normal}");
    }

    #[test]
    fn trends_and_success_rates_have_known_p_values() {
        let rising: Vec<f64> = (0..8).map(f64::from).collect();
        let falling: Vec<f64> = rising.iter().map(|value| -value).collect();
        let (rho, chance) = spearman(&rising, &falling).unwrap();
        assert!(near(rho, -1.0) && near(chance, 2.0 / 40_320.0), "{chance}");
        assert_eq!(spearman(&rising, &[3.0; 8]), None);
        assert_eq!(spearman(&rising[..3], &falling), None);
        // In Fisher's tea experiment, 3 of 4 cups were identified correctly. The two-sided p-value
        // is 34/70.
        assert!((fisher_exact((3, 4), (1, 4)) - 0.485_714).abs() < 1e-6);
        assert!(near(fisher_exact((5, 5), (5, 5)), 1.0));
        assert!(fisher_exact((20, 20), (0, 20)) < 1e-9);
    }

    #[test]
    fn sorted_lists_are_detected() {
        assert!(near(
            sorted_by_chance(&[1.0, 2.0, 3.0, 4.0]).unwrap(),
            1.0 / 24.0
        ));
        assert!(near(
            sorted_by_chance(&[4.0, 2.0, 2.0, 1.0]).unwrap(),
            2.0 / 24.0
        ));
        assert_eq!(sorted_by_chance(&[1.0, 3.0, 2.0]), None);
        assert_eq!(sorted_by_chance(&[1.0, 1.0]), None);
        assert_eq!(sorted_by_chance(&[]), None);
    }
}
