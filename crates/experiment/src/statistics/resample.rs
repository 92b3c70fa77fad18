//! Intervals by drawing a sample again from itself (bootstrap).
//!
//! Of few values the plain percentiles are too narrow: they leave out that the spread is a guess as
//! well. So each sample that is drawn is put in units of its own spread, as Student did (percentile-t, Efron
//! 1981), and both ends lie equally far from the centre (Hall 1988): with an end of its own for each side, 8 % of the
//! intervals missed the truth where values have a heavy tail. The benchmark `trial_benchmark` has how often these do.

use ticktax_model::Nanos;
use ticktax_sim::{Law, Stream};

use super::mean;
use super::student::{student_quantile, variance, welch};

/// How often a sample is drawn again.
const DRAWS: usize = 2_000;
/// With more values than this Student's interval is the same, and sooner there.
const MANY: usize = 500;
/// With fewer than this many of the samples that are drawn have hardly a spread: the interval is wider than Student's,
/// and holds the truth no more often.
const FEW: usize = 8;
/// Of what is drawn: the same values have the same interval.
const SEED: u64 = 0x5eed;

/// Places in a list, drawn by chance.
struct Places(Stream);

impl Places {
    fn new() -> Self {
        Self(Stream::new(SEED, 0))
    }

    /// As many of `values` as there are, each time any of them.
    fn sample(&mut self, values: &[f64], into: &mut Vec<f64>) {
        let size = i64::try_from(values.len()).unwrap_or(i64::MAX);
        let law = Law::Uniform(Nanos(0), Nanos(size));
        into.clear();
        into.extend(values.iter().map(|_| {
            let place = usize::try_from(self.0.draw(&law).0).unwrap_or(0);
            values[place]
        }));
    }
}

/// The 95 % interval of a mean; `None` of fewer than two values.
pub fn mean_interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let of = |values: &[f64]| (mean(values), (variance(values) / n as f64).sqrt());
    let told = of(values);
    let freedom = n as f64 - 1.0;
    if !(FEW..=MANY).contains(&n) {
        return Some(by_student(told, freedom));
    }
    let (mut places, mut sample) = (Places::new(), Vec::with_capacity(n));
    Some(studentised(told, freedom, || {
        places.sample(values, &mut sample);
        of(&sample)
    }))
}

/// The 95 % interval of what a second sample's mean is more than a first one's: as the logarithm of
/// the ratio of the two, or as their difference; `None` of fewer than two values in one of them.
pub fn means_interval(a: &[f64], b: &[f64], as_ratio: bool) -> Option<(f64, f64)> {
    if a.len().min(b.len()) < 2 {
        return None;
    }
    // The spread of the logarithm of a mean is that of the mean as a share of it (delta method).
    let of = |a: &[f64], b: &[f64]| {
        let ((ma, va), (mb, vb)) = ((mean(a), variance(a)), (mean(b), variance(b)));
        let (centre, va, vb) = if as_ratio {
            ((mb / ma).ln(), va / (ma * ma), vb / (mb * mb))
        } else {
            (mb - ma, va, vb)
        };
        let (error, freedom) = welch((va, a.len()), (vb, b.len()));
        (centre, error, freedom)
    };
    let (centre, error, freedom) = of(a, b);
    let few = a.len().min(b.len()) < FEW;
    if few || a.len().max(b.len()) > MANY {
        return Some(by_student((centre, error), freedom));
    }
    let mut places = Places::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    Some(studentised((centre, error), freedom, || {
        places.sample(a, &mut first);
        places.sample(b, &mut second);
        let (centre, error, _) = of(&first, &second);
        (centre, error)
    }))
}

/// A centre and its standard error, with Student's law.
fn by_student((centre, error): (f64, f64), freedom: f64) -> (f64, f64) {
    let margin = error * student_quantile(0.975, freedom);
    (centre - margin, centre + margin)
}

/// A centre and its standard error, with the law of what `again` draws: the same two of other samples.
fn studentised(
    (centre, error): (f64, f64),
    freedom: f64,
    mut again: impl FnMut() -> (f64, f64),
) -> (f64, f64) {
    let mut off: Vec<f64> = (0..DRAWS)
        .map(|_| again())
        .map(|(drawn, error)| ((drawn - centre) / error).abs())
        // A sample of equal values at the centre says nothing; one elsewhere is infinitely far off.
        .filter(|off| !off.is_nan())
        .collect();
    off.sort_by(f64::total_cmp);
    let far = (off.len() >= DRAWS / 2).then(|| quantile(&off, 0.95));
    let Some(far) = far.filter(|far| far.is_finite()) else {
        return by_student((centre, error), freedom);
    };
    let margin = error * far;
    (centre - margin, centre + margin)
}

/// The value below which a share of the sorted ones lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a vector's length is a place in it"
    )]
    let place = place.round() as usize;
    sorted[place]
}

/// The 95 % interval of the ratio of two means less one, by drawing both samples again `draws`
/// times (bootstrap percentiles). The same samples give the same interval.
pub fn ratio_interval(a: &[f64], b: &[f64], draws: u32) -> (f64, f64) {
    let (mut places, mut sample) = (Places::new(), Vec::new());
    let mut again = |values: &[f64]| {
        places.sample(values, &mut sample);
        mean(&sample)
    };
    let mut ratios: Vec<f64> = (0..draws).map(|_| again(b) / again(a) - 1.0).collect();
    ratios.sort_by(f64::total_cmp);
    (quantile(&ratios, 0.025), quantile(&ratios, 0.975))
}

#[cfg(test)]
mod tests {
    use super::{mean_interval, means_interval};

    #[test]
    fn intervals_hold_their_centre_and_are_the_same_again() {
        let values = [3.0, 5.0, 4.0, 6.0, 4.5, 9.0, 5.0, 5.5];
        let (low, high) = mean_interval(&values).unwrap();
        assert!((low + high - 10.5).abs() < 1e-9, "{low} {high}");
        assert_eq!(mean_interval(&values), Some((low, high)));
        // A little more than Student's, by the one that lies far above: 2.36 · 1.77 / √8 = 1.48.
        assert!((1.48..2.5).contains(&(high - 5.25)), "{high}");
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[2.0; 6]), Some((2.0, 2.0)));
        assert_eq!(mean_interval(&[2.0; 9]), Some((2.0, 2.0)));
        // A third of the samples of nine equal values and another one have no spread: Student's, 2.26 · 0.1.
        let mut one = [0.0; 10];
        one[4] = 1.0;
        let (low, high) = mean_interval(&one).unwrap();
        assert!((high - low - 0.452).abs() < 0.001, "{low} {high}");
        let (low, high) = mean_interval(&[1.0, 2.0]).unwrap();
        assert!((high - low - 12.706).abs() < 0.01, "Student's, of two");
    }

    #[test]
    fn two_samples_have_a_ratio_and_a_difference() {
        let a = [10.0, 10.2, 9.8, 10.1, 10.0, 10.2, 9.8, 10.1];
        let b = a.map(|it| 2.0 * it);
        let (low, high) = means_interval(&a, &b, true).unwrap();
        let two = 2.0_f64.ln();
        assert!(low < two && two < high && high - low < 0.3, "{low} {high}");
        let (low, high) = means_interval(&a, &b, false).unwrap();
        assert!(low < 10.025 && 10.025 < high, "{low} {high}");
        assert_eq!(means_interval(&a, &b[..1], false), None);
        assert_eq!(means_interval(&[1.0; 5], &[1.0; 5], true), Some((0.0, 0.0)));
        let many: Vec<f64> = (0..2_000).map(|i| f64::from(i % 10)).collect();
        let (low, high) = means_interval(&many, &many, false).unwrap();
        assert!((low + high).abs() < 1e-9 && high < 0.2, "{low} {high}");
    }
}
