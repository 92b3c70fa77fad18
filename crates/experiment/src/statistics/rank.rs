//! Tests that ask for the order of values only, so that one run that hung cannot decide them.

use statrs::function::erf::erfc;
use statrs::function::factorial::ln_factorial;

use super::student::student_chance;

/// Up to this product of both samples' sizes together and the smaller one's, all ways to draw the
/// smaller one are counted: 32 million additions at most.
const COUNTED: usize = 4_000;
/// Up to so many differences, all their signs are counted.
const SIGNED: usize = 200;

/// Twice the rank of each value, from 2; what is equal shares the middle of its ranks.
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

/// The two-sided probability that chance separates two samples as well as these are (Mann and
/// Whitney 1947); 1 where one is empty.
///
/// Exact, by counting every way to draw the smaller sample from all values, ties and all, up to
/// 4,000 for the product of its size and that of both; beyond that by the normal law, with the
/// corrections for ties and for continuity (Lehmann 1975, 1.4).
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

/// The share of all ways to choose `few` of the ranks whose sum is at least `off` from the middle.
fn counted_rank_sum(ranks: &[usize], few: usize, middle: usize, off: usize) -> f64 {
    let mut largest = ranks.to_vec();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let most: usize = largest[..few].iter().sum();
    // ways[j][s]: to choose j of the ranks so far with the sum s.
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
    // The variance of doubled ranks that are drawn without replacement; ties are in it.
    let squares: f64 = ranks
        .iter()
        .map(|&rank| (rank as f64 - (n + 1.0)).powi(2))
        .sum();
    let few = few as f64;
    let variance = few * (n - few) / (n * (n - 1.0)) * squares;
    two_sided(off as f64 - 1.0, variance)
}

/// The two-sided probability that chance moves paired values as far to one side as these
/// differences are (Wilcoxon 1945; differences of 0 keep their ranks and count for nobody, Pratt 1959).
///
/// Where a coin decided for each pair which of the two came first, this is exact whatever the
/// machine did meanwhile: every sign could as well have been the other one. All signs are counted
/// up to 200 differences; beyond that the normal law is taken.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let sizes: Vec<f64> = differences.iter().map(|it| it.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let signed = || differences.iter().zip(&ranks).filter(|(it, _)| **it != 0.0);
    let total: usize = signed().map(|(_, rank)| rank).sum();
    let positive: usize = signed()
        .filter(|(it, _)| **it > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    let off = (2 * positive).abs_diff(total);
    if signed().count() > SIGNED {
        let squares: f64 = signed().map(|(_, &rank)| (rank as f64).powi(2)).sum();
        return two_sided(off as f64 - 2.0, squares);
    }
    // chances[s]: that the positive ranks so far have the sum s.
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

/// The probability that a normal variable of this variance is as far from 0.
fn two_sided(off: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    erfc(off.max(0.0) / (2.0 * variance).sqrt()).min(1.0)
}

/// The rank correlation of two rows of equal length (Spearman 1904), and the two-sided probability of
/// as large a one by chance (Student's law, no less than one order of all); `None` of fewer than four
/// pairs, or where one row is constant.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let n = a.len().min(b.len());
    if n < 4 {
        return None;
    }
    let (a, b) = (doubled_ranks(&a[..n]), doubled_ranks(&b[..n]));
    let middle = (n + 1) as f64;
    let off = |rank: &usize| *rank as f64 - middle;
    let both: f64 = a.iter().zip(&b).map(|(x, y)| off(x) * off(y)).sum();
    let squares = |ranks: &[usize]| ranks.iter().map(|it| off(it).powi(2)).sum::<f64>();
    let size = (squares(&a) * squares(&b)).sqrt();
    if size <= 0.0 {
        return None;
    }
    let rho = (both / size).clamp(-1.0, 1.0);
    let freedom = n as f64 - 2.0;
    let t = rho * (freedom / (1.0 - rho * rho)).sqrt();
    let least = 2.0 * (-ln_factorial(n as u64)).exp();
    Some((rho, student_chance(t, freedom).max(least)))
}

/// The two-sided probability that chance gives two rows of trials so different numbers of successes
/// (Fisher 1935): `successes` of `trials` each.
pub fn fisher_exact(a: (u64, u64), b: (u64, u64)) -> f64 {
    let ln_choose = |n: u64, k: u64| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let (successes, trials) = (a.0 + b.0, a.1 + b.1);
    let ln_chance = |first: u64| {
        ln_choose(a.1, first) + ln_choose(b.1, successes - first) - ln_choose(trials, successes)
    };
    let seen = ln_chance(a.0);
    let possible = successes.saturating_sub(b.1)..=successes.min(a.1);
    let as_rare = possible.map(ln_chance).filter(|it| *it <= seen + 1e-7);
    as_rare.map(f64::exp).sum::<f64>().min(1.0)
}

/// Chances of several tests, corrected so that the smallest of them may be looked at (Holm 1979);
/// what has none is no member of the family.
pub fn holm(chances: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = chances
        .iter()
        .enumerate()
        .filter_map(|(place, chance)| Some((place, (*chance)?)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = vec![None; chances.len()];
    let mut least = 0.0_f64;
    for (before, (place, chance)) in order.iter().enumerate() {
        least = least.max(chance * (order.len() - before) as f64).min(1.0);
        corrected[*place] = Some(least);
    }
    corrected
}

/// The probability that exchangeable values come in this order, where they ascend or descend without
/// an exception; equal ones may stand in any order among themselves. `None` where they do not, or all
/// are equal.
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
        counted_rank_sum, doubled_ranks, fisher_exact, holm, mann_whitney, normal_rank_sum,
        signed_rank, sorted_by_chance, spearman,
    };
    use crate::statistics::choices;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn complete_separation_is_two_in_all_choices() {
        let p = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(near(p, 2.0 / 20.0), "{p}");
        assert!(near(mann_whitney(&[1.0, 4.0], &[2.0, 3.0]), 1.0));
        assert!(near(mann_whitney(&[], &[1.0]), 1.0));
        assert!(near(mann_whitney(&[1.0; 9], &[1.0; 7]), 1.0));
    }

    /// Every choice one by one, as a definition has it.
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
    fn counting_agrees_with_the_definition_ties_or_not() {
        for (a, b) in [
            (&[1.0, 5.0, 2.5, 7.0][..], &[2.0, 3.0, 9.0, 11.0, 12.0][..]),
            (&[1.0, 1.0, 2.0], &[1.0, 2.0, 2.0, 3.0, 3.0, 3.0]),
            (&[4.0, 4.0, 4.0, 5.0, 1.0], &[5.0, 5.0, 4.0, 9.0]),
        ] {
            let (told, truth) = (mann_whitney(a, b), by_definition(a, b));
            assert!(near(told, truth), "{told} {truth}");
            assert!(near(mann_whitney(b, a), truth));
        }
    }

    #[test]
    fn many_values_are_judged_as_few_are() {
        // Beyond 20 values in all, which bits could not count, and beyond what is counted.
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
    fn signs_are_counted() {
        // All of one sign: 2 in 2^n. The table of Wilcoxon's test: n = 10, W = 8 has 0.0488.
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
        // Either side of where counting ends.
        let row = |n: i32| -> Vec<f64> {
            (0..n)
                .map(|i| f64::from((i * 71) % n) - 0.44 * f64::from(n))
                .collect()
        };
        let (counted, normal) = (signed_rank(&row(200)), signed_rank(&row(201)));
        assert!((counted - normal).abs() < 0.01, "{counted} {normal}");
    }

    #[test]
    fn trends_and_successes() {
        let rising: Vec<f64> = (0..8).map(f64::from).collect();
        let falling: Vec<f64> = rising.iter().map(|it| -it).collect();
        let (rho, chance) = spearman(&rising, &falling).unwrap();
        assert!(near(rho, -1.0) && near(chance, 2.0 / 40_320.0), "{chance}");
        assert_eq!(spearman(&rising, &[3.0; 8]), None);
        assert_eq!(spearman(&rising[..3], &falling), None);
        // Fisher's cup of tea: 3 of 4 right.
        assert!((fisher_exact((3, 4), (1, 4)) - 0.485_714).abs() < 1e-6);
        assert!(near(fisher_exact((5, 5), (5, 5)), 1.0));
        assert!(fisher_exact((20, 20), (0, 20)) < 1e-9);
    }

    #[test]
    fn a_family_of_tests_is_corrected() {
        let told = holm(&[Some(0.01), None, Some(0.04), Some(0.03)]);
        let wanted = [Some(0.03), None, Some(0.06), Some(0.06)];
        for (told, wanted) in told.iter().zip(wanted) {
            assert_eq!(told.is_some(), wanted.is_some());
            assert!(near(told.unwrap_or(0.0), wanted.unwrap_or(0.0)), "{told:?}");
        }
        assert_eq!(holm(&[Some(0.9), Some(0.8)]), [Some(1.0), Some(1.0)]);
    }

    #[test]
    fn what_is_sorted_is_seen() {
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
