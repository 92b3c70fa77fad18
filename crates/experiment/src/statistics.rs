//! What is asked of a few published numbers.

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// The two-sided probability that chance separates two samples as well as these are, by the exact
/// distribution of the Mann–Whitney statistic. Ties count half.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let above = |x: f64, y: f64| match x.total_cmp(&y) {
        std::cmp::Ordering::Greater => 2,
        std::cmp::Ordering::Equal => 1,
        std::cmp::Ordering::Less => 0,
    };
    let statistic: u64 = a
        .iter()
        .flat_map(|&x| b.iter().map(move |&y| above(x, y)))
        .sum();
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let middle = u64::try_from(a.len() * b.len()).unwrap_or(u64::MAX);
    let off = statistic.abs_diff(middle);
    let (mut as_far, mut total) = (0_u64, 0_u64);
    for chosen in choices(all.len(), a.len()) {
        let (mut u, mut i) = (0, 0);
        while i < all.len() {
            if chosen >> i & 1 == 1 {
                u += (0..all.len())
                    .filter(|&j| chosen >> j & 1 == 0)
                    .map(|j| above(all[i], all[j]))
                    .sum::<u64>();
            }
            i += 1;
        }
        total += 1;
        as_far += u64::from(u.abs_diff(middle) >= off);
    }
    as_far as f64 / total as f64
}

/// All ways to choose `k` of `n` (at most 20) things, as bits.
pub fn choices(n: usize, k: usize) -> impl Iterator<Item = u32> {
    let all = 1_u32 << n.min(20);
    (0..all).filter(move |bits| bits.count_ones() as usize == k)
}

/// The probability that exchangeable values come in strictly ascending order: 1/n!; `None` where
/// these do not.
pub fn ascending_by_chance(values: &[f64]) -> Option<f64> {
    let ascending = values.windows(2).all(|pair| pair[0] < pair[1]);
    let factorial = |n: usize| (1..=n).map(|k| k as f64).product::<f64>();
    (ascending && values.len() > 2).then(|| 1.0 / factorial(values.len()))
}

/// The 95 % interval of the ratio of two means less one, by drawing both samples again `draws`
/// times (bootstrap percentiles). The same samples give the same interval.
pub fn ratio_interval(a: &[f64], b: &[f64], draws: u32) -> (f64, f64) {
    let mut stream = ticktax_sim::Stream::new(0x5eed, 0);
    let mut again = |values: &[f64]| {
        let law = ticktax_sim::Law::Uniform(
            ticktax_model::Nanos(0),
            ticktax_model::Nanos(i64::try_from(values.len()).unwrap_or(i64::MAX)),
        );
        let sample: Vec<f64> = values
            .iter()
            .map(|_| values[usize::try_from(stream.draw(&law).0).unwrap_or(0)])
            .collect();
        mean(&sample)
    };
    let mut ratios: Vec<f64> = (0..draws).map(|_| again(b) / again(a) - 1.0).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = part * (ratios.len() - 1) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a vector's length is a place in it"
        )]
        let place = place.round() as usize;
        ratios[place]
    };
    (at(0.025), at(0.975))
}

/// The straight line through points by least squares: value at 0, and slope.
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
    use super::{ascending_by_chance, choices, line, mann_whitney};

    #[test]
    fn complete_separation_is_two_in_all_choices() {
        let p = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!((p - 2.0 / 20.0).abs() < 1e-12, "{p}");
        assert!((mann_whitney(&[1.0, 4.0], &[2.0, 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(choices(6, 3).count(), 20);
    }

    #[test]
    fn order_and_lines() {
        assert_eq!(ascending_by_chance(&[1.0, 3.0, 2.0]), None);
        let p = ascending_by_chance(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!((p - 1.0 / 720.0).abs() < 1e-12);
        let (a, b) = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((a - 1.0).abs() < 1e-12 && (b - 2.0).abs() < 1e-12);
    }
}
