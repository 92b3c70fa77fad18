//! Bounds the time that kernel entry and exit take on this machine.
//!
//! The *residual* of a spinning probe's gap is the time that no named row covers. A gap's
//! *signature* is the set of its rows. Residuals with the same signature are mostly similar and are
//! modelled as log-normal: q50 is the median, q05 the 5 % quantile, and the spread is s = ln(q50 /
//! q05) / 1.645. At most one residual in a thousand should exceed B = q50 · e^(3.1 s). If one does,
//! only q50 of it counts as entry and exit, and the rest needs another explanation. The lower half
//! determines the bound because the interruptions to be found are in the upper half. The spread s
//! is at least [`LEAST_SPREAD`], because the kernel's code paths differ in length, and all short
//! residuals may come from a single path.
//!
//! If a signature has fewer than [`ENOUGH`] gaps, its bound comes from a larger set:
//! 1. all gaps of its [`Shape`] that begin with a row from the same source;
//! 2. if those are too few, all gaps of that shape;
//! 3. if those are too few, all gaps on the machine. They only show how fast the machine is, so the
//!    bound is [`OTHER_SHAPES`] times theirs;
//! 4. if even those are too few, no bound applies.
//!
//! The gaps in sets 1 to 3 are less alike, so s is at least [`LEAST_SPREAD_OF_MANY`] for them.
//!
//! [`LEAST_SPREAD`], [`LEAST_SPREAD_OF_MANY`] and [`OTHER_SHAPES`] were chosen on guests whose
//! clocks count their own instructions, so they have no outside time. docs/reference/kernels.md
//! lists the rule's errors on those guests, for kernels on two architectures.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;
use ticktax_model::statement::EntryExitBound;
use ticktax_model::{Nanos, SourceId};

use super::accounts::Registry;
use super::signatures::{Shape, Signatures};
use super::tally::Tally;

/// Minimum number of gaps required to determine a bound.
const ENOUGH: u64 = 50;
/// ln(q50 / q05) of a log-normal distribution, in standard deviations.
const LOWER_TAIL: f64 = 1.645;
/// One in a thousand values is at least this many standard deviations above the median.
const UPPER_TAIL: f64 = 3.1;
/// Upper limit on s. A 5 % quantile of a few nanoseconds only reflects the clock's resolution.
const MAX_SPREAD: f64 = 1.26;
/// Lower limit on s for a bound computed from a single signature.
const LEAST_SPREAD: f64 = 0.2;
/// Lower limit on s for a bound computed from several signatures together.
const LEAST_SPREAD_OF_MANY: f64 = 0.3;
/// Factor that widens the bound computed from all gaps when a shape with too few gaps uses it.
const OTHER_SHAPES: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    index: u16,
    count: u64,
    time: Nanos,
}

impl Bucket {
    fn mean(self) -> Nanos {
        Nanos(self.time.0 / i64::try_from(self.count.max(1)).unwrap_or(i64::MAX))
    }

    /// Returns the part of the bucket's time that is not entry and exit. Returns `None` if `bound`
    /// is `None` or the bucket does not exceed it.
    fn beyond(self, bound: Option<Bound>) -> Option<Tally> {
        let Bound { median, .. } = bound.filter(|bound| self.mean() > bound.most)?;
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        Some(Tally {
            time: self.time - Nanos(median.0.saturating_mul(count)),
            count: self.count,
            longest: self.mean() - median,
        })
    }
}

/// A histogram of residuals, with exact sums. Buckets are 4 to 6 % wide.
#[derive(Clone, Debug, Default)]
pub(super) struct Residuals(Vec<Bucket>);

impl Residuals {
    /// Returns the index of the bucket for `residual`. There are sixteen buckets per octave.
    fn index(residual: Nanos) -> u16 {
        let value = residual.0.max(1).unsigned_abs();
        let octave = value.ilog2();
        let step = (u128::from(value) << 4 >> octave) & 15;
        u16::try_from(u128::from(octave) * 16 + step).unwrap_or(u16::MAX)
    }

    fn place(&mut self, index: u16) -> &mut Bucket {
        let place = match self.0.binary_search_by_key(&index, |bucket| bucket.index) {
            Ok(place) => place,
            Err(place) => {
                let bucket = Bucket {
                    index,
                    ..Bucket::default()
                };
                self.0.insert(place, bucket);
                place
            }
        };
        &mut self.0[place]
    }

    pub(super) fn add(&mut self, residual: Nanos) {
        let bucket = self.place(Self::index(residual));
        bucket.count += 1;
        bucket.time += residual;
    }

    fn merge(&mut self, other: &Self) {
        for added in &other.0 {
            let bucket = self.place(added.index);
            bucket.count += added.count;
            bucket.time += added.time;
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).sum()
    }

    fn quantile(&self, q: f64) -> Nanos {
        let rank = q * self.count() as f64;
        let mut below = 0;
        for bucket in &self.0 {
            below += bucket.count;
            if below as f64 >= rank {
                return bucket.mean();
            }
        }
        Nanos::ZERO
    }

    /// Splits the residuals into entry and exit, and the excess over it.
    pub(super) fn split(&self, bound: Option<Bound>) -> Split {
        let mut split = Split::default();
        for bucket in &self.0 {
            match bucket.beyond(bound) {
                Some(beyond) => split.beyond.merge(&beyond),
                None => split.longest = split.longest.max(bucket.mean()),
            }
        }
        split
    }

    /// Returns the excess over entry and exit, as one tally per bucket.
    pub(super) fn beyond(&self, bound: Option<Bound>) -> impl Iterator<Item = Tally> + '_ {
        self.0.iter().filter_map(move |bucket| bucket.beyond(bound))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    /// Length of the longest residual that is entirely entry and exit.
    pub(super) longest: Nanos,
    /// Excess of all longer residuals over the median.
    pub(super) beyond: Tally,
}

/// Usual and maximum time that entry and exit take in one set of gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) median: Nanos,
    /// Longest residual that counts as entry and exit.
    pub(super) most: Nanos,
}

impl Bound {
    /// Computes the bound from `residuals`, if there are enough of them. The spread is at least
    /// `least`. Lengths are accurate to `noise`.
    fn estimate(residuals: &Residuals, least: f64, noise: Nanos) -> Option<Self> {
        if residuals.count() < ENOUGH {
            return None;
        }
        let (median, low) = (residuals.quantile(0.5), residuals.quantile(0.05));
        let ratio = median.0.max(1) as f64 / low.0.max(1) as f64;
        let spread = (ratio.ln() / LOWER_TAIL).clamp(least, MAX_SPREAD);
        #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
        let most = Nanos((median.0 as f64 * (UPPER_TAIL * spread).exp()) as i64);
        Some(Self {
            median,
            most: most.max(median + noise),
        })
    }

    fn for_another_shape(self) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
        let most = Nanos((self.most.0 as f64 * OTHER_SHAPES) as i64);
        Self { most, ..self }
    }
}

fn bounds_of<K: Copy + Eq + Hash>(
    residuals: &HashMap<K, Residuals, FixedState>,
    bound: impl Fn(&Residuals) -> Option<Bound>,
) -> HashMap<K, Bound, FixedState> {
    let bounds = residuals
        .iter()
        .filter_map(|(&key, residuals)| Some((key, bound(residuals)?)));
    bounds.collect()
}

#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The bounds, indexed by signature, or `None` where no bound applies.
    bounds: Vec<Option<Bound>>,
    first: Vec<(SourceId, Shape)>,
}

impl Bounds {
    /// Computes all bounds. `residuals` yields each signature once per CPU and side (long, short
    /// and yielded gaps). Lengths are accurate to `noise`.
    pub(super) fn new<'a>(
        signatures: &Signatures,
        residuals: impl Iterator<Item = (usize, &'a Residuals)>,
        noise: Nanos,
    ) -> Self {
        let mut by_signature = vec![Residuals::default(); signatures.first.len()];
        let mut by_first: HashMap<(SourceId, Shape), Residuals, FixedState> = HashMap::default();
        let mut by_shape: HashMap<Shape, Residuals, FixedState> = HashMap::default();
        let mut all = Residuals::default();
        for (signature, residuals) in residuals {
            by_signature[signature].merge(residuals);
            let first = signatures.first[signature];
            by_first.entry(first).or_default().merge(residuals);
            by_shape.entry(first.1).or_default().merge(residuals);
            all.merge(residuals);
        }
        let many = |residuals: &Residuals| Bound::estimate(residuals, LEAST_SPREAD_OF_MANY, noise);
        let by_first = bounds_of(&by_first, many);
        let by_shape = bounds_of(&by_shape, many);
        let of_machine = many(&all).map(Bound::for_another_shape);
        let bound = |(own, first): (&Residuals, &(SourceId, Shape))| {
            Bound::estimate(own, LEAST_SPREAD, noise)
                .or_else(|| by_first.get(first).copied())
                .or_else(|| by_shape.get(&first.1).copied())
                .or(of_machine)
        };
        Self {
            bounds: by_signature
                .iter()
                .zip(&signatures.first)
                .map(bound)
                .collect(),
            first: signatures.first.clone(),
        }
    }

    pub(super) fn bound(&self, signature: usize) -> Option<Bound> {
        self.bounds.get(signature).copied().flatten()
    }

    /// Returns the source of the first row in gaps with this signature.
    pub(super) fn first(&self, signature: usize) -> SourceId {
        self.first[signature].0
    }

    /// Returns the excess that the bounds removed from entry and exit, grouped by the account of
    /// the gaps' first row, largest first.
    pub(super) fn statement<'a>(
        &self,
        residuals: impl Iterator<Item = (usize, &'a Residuals)>,
        registry: &Registry,
    ) -> Vec<EntryExitBound> {
        let mut around: Vec<EntryExitBound> = Vec::new();
        for (signature, residuals) in residuals {
            let Some(bound) = self.bound(signature) else {
                continue;
            };
            let beyond = residuals.split(Some(bound)).beyond;
            if residuals.count() == 0 {
                continue;
            }
            let (_, name) = registry.describe(registry.account_of(self.first(signature)));
            let place = around.iter().position(|known| *known.account == **name);
            let place = place.unwrap_or_else(|| {
                around.push(EntryExitBound {
                    account: name.to_string(),
                    count: 0,
                    median: bound.median,
                    bound: bound.most,
                    beyond_count: 0,
                    beyond: Nanos::ZERO,
                });
                around.len() - 1
            });
            let known = &mut around[place];
            known.count += residuals.count();
            known.median = known.median.max(bound.median);
            known.bound = known.bound.max(bound.most);
            known.beyond_count += beyond.count;
            known.beyond += beyond.time;
        }
        around.sort_by(|a, b| {
            let by_time = b.beyond.cmp(&a.beyond).then(b.count.cmp(&a.count));
            by_time.then_with(|| a.account.cmp(&b.account))
        });
        around
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::statement::Class;

    use super::super::signatures::tests::held;
    use super::{Bound, Bounds, LEAST_SPREAD, Residuals, Shape, Signatures};

    /// Returns `count` residuals with a median of `median` ns. The standard deviation of their
    /// logarithms is 10 %.
    fn residuals(median: f64, count: u32) -> Residuals {
        let mut residuals = Residuals::default();
        for n in 0..count {
            // Use quantiles of a logistic distribution, which has longer tails than a normal one.
            let q = (f64::from(n) + 0.5) / f64::from(count);
            let normal = (q / (1.0 - q)).ln() / 1.8;
            #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
            residuals.add(Nanos((median * (0.1 * normal).exp()) as i64));
        }
        residuals
    }

    #[test]
    fn usual_residuals_are_within_the_bound() {
        let usual = residuals(1_000.0, 1_000);
        let bound = Bound::estimate(&usual, LEAST_SPREAD, Nanos(10)).unwrap();
        assert!((950..1_050).contains(&bound.median.0), "{bound:?}");
        assert!((1_700..2_000).contains(&bound.most.0), "{bound:?}");
        let beyond = usual.split(Some(bound)).beyond;
        assert!(beyond.count <= 5, "{beyond:?}");
    }

    #[test]
    fn time_added_to_a_few_residuals_is_beyond_the_bound() {
        let mut all = residuals(1_000.0, 1_000);
        for _ in 0..20 {
            all.add(Nanos(5_000_000));
        }
        let bound = Bound::estimate(&all, LEAST_SPREAD, Nanos(10)).unwrap();
        let beyond = all.split(Some(bound)).beyond;
        assert!((20..25).contains(&beyond.count), "{beyond:?}");
        let off = beyond.time.0 - 20 * 4_999_000;
        assert!(off.abs() < 20_000, "{beyond:?}");
    }

    #[test]
    fn too_few_residuals_have_no_bound() {
        let few = residuals(1_000.0, 49);
        assert_eq!(Bound::estimate(&few, LEAST_SPREAD, Nanos(10)), None);
        assert_eq!(few.split(None).beyond.time, Nanos::ZERO);
    }

    /// In this test, an interrupt takes 3.6 µs, and switching to a thread and back takes about 13
    /// µs.
    #[test]
    fn gaps_are_judged_with_those_of_their_shape() {
        let mut signatures = Signatures::default();
        let shape = |classes: &[Class]| {
            let mut shape = Shape::default();
            for &class in classes {
                shape.add(Some(class));
            }
            shape
        };
        let interrupts = shape(&[Class::Irq]);
        let threads = shape(&[Class::Irq, Class::KernelThread]);
        let softirqs = shape(&[Class::Irq, Class::Softirq]);
        let mut all = Vec::new();
        let mut add = |sources: &[u32], shape: Shape, residual: i64, count: u64| {
            let signature = signatures.intern(&held(sources), shape).unwrap();
            let mut residuals = Residuals::default();
            (0..count).for_each(|_| residuals.add(Nanos(residual)));
            all.push((signature, residuals));
            signature
        };
        let tick = add(&[1], interrupts, 3_600, 500);
        add(&[1, 10], threads, 13_000, 40);
        let rare = add(&[1, 11], threads, 14_400, 1);
        add(&[2, 12], threads, 12_000, 40);
        let alone = add(&[1, 20], softirqs, 5_500, 3);
        let residuals = || {
            all.iter()
                .map(|(signature, residuals)| (*signature, residuals))
        };
        let bounds = Bounds::new(&signatures, residuals(), Nanos(10));
        let none_beyond = |(signature, residuals): (usize, &Residuals)| {
            let beyond = residuals.split(bounds.bound(signature)).beyond;
            assert_eq!(
                beyond.count,
                0,
                "{signature}: {:?}",
                bounds.bound(signature)
            );
        };
        residuals().for_each(none_beyond);
        let most = |signature| bounds.bound(signature).unwrap().most.0;
        assert!((6_000..7_000).contains(&most(tick)), "{}", most(tick));
        assert!((30_000..35_000).contains(&most(rare)), "{}", most(rare));
        // This shape has too few gaps for its own bound. The bound comes from the gaps of all
        // shapes and is much higher than the one above.
        assert!((60_000..80_000).contains(&most(alone)), "{}", most(alone));
    }

    #[test]
    fn sums_are_exact() {
        let mut residuals = Residuals::default();
        (0..10_000).for_each(|n| residuals.add(Nanos(n * 37)));
        let sum: i64 = residuals.0.iter().map(|bucket| bucket.time.0).sum();
        assert_eq!(sum, 37 * 9_999 * 5_000);
        assert!(residuals.0.len() < 320);
    }
}
