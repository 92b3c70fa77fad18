//! How long getting into and out of the kernel takes on this machine, and what is too long for it.
//!
//! What a gap of the spinning probe holds beyond named rows is its *residual*. Around one and the same
//! set of rows, the *signature*, most residuals are alike: their logarithms spread about the median
//! q50 as far as the lower 5 % quantile q05 says, s = ln(q50 / q05) / 1.645. At most one in a thousand should be above
//! B = q50 · e^(3.1 s). A residual above B is taken for q50 of entry and exit, and for something else
//! besides. The lower half sets the bound because what is to be found is in the upper one; but s is [`LEAST_SPREAD`] at least, because
//! the kernel's own code has ways of several lengths, of which all short ones may be the same.
//!
//! A signature with fewer than [`ENOUGH`] gaps is judged with all gaps of its [`Shape`] whose first row is of the same
//! source; these, where they are fewer, with all gaps of that shape. What these hold differs more, so s is
//! [`LEAST_SPREAD_OF_MANY`] at least. Where there are fewer of that shape still, all gaps of the machine tell no more than how fast it is: the
//! bound is [`OTHER_SHAPES`] times theirs. Fewer than that are not judged at all.
//!
//! These three were chosen by guests whose clocks count their own instructions, where nothing is outside. docs/kernels.md has what the rule
//! gets wrong there, on kernels of two architectures.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;
use ticktax_model::statement::EntryExitBound;
use ticktax_model::{Nanos, SourceId};

use super::accounts::Registry;
use super::signatures::{Shape, Signatures};
use super::tally::Tally;

/// The gaps that a bound is made from, at least.
const ENOUGH: u64 = 50;
/// ln(q50 / q05) of a normal distribution, in standard deviations.
const LOWER_TAIL: f64 = 1.645;
/// Standard deviations above the median that one in a thousand exceeds.
const UPPER_TAIL: f64 = 3.1;
/// The most that s may be: a lower quantile of some ns, which is the clock's, says nothing.
const MAX_SPREAD: f64 = 1.26;
/// The least that s is taken for, around one signature.
const LEAST_SPREAD: f64 = 0.2;
/// The same around several of one shape.
const LEAST_SPREAD_OF_MANY: f64 = 0.3;
/// How often the bound of all gaps is that of a shape which there are few gaps of.
const OTHER_SHAPES: f64 = 8.0;

/// Residuals of about one length.
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

    /// What these have beyond entry and exit; `None` where they are all entry and exit.
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

/// Residuals by length, in steps of 4 to 6 %, whose sums are exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Residuals(Vec<Bucket>);

impl Residuals {
    /// Sixteen steps an octave.
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

    /// Adds one.
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

    /// The residual below which the share `q` of them lies.
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

    /// What is left of them for entry and exit, and what is beyond.
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

    /// What is beyond entry and exit, those of about one length together.
    pub(super) fn beyond(&self, bound: Option<Bound>) -> impl Iterator<Item = Tally> + '_ {
        self.0.iter().filter_map(move |bucket| bucket.beyond(bound))
    }
}

/// Residuals, split by a bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    /// The longest that is all entry and exit.
    pub(super) longest: Nanos,
    /// What the others have beyond entry and exit.
    pub(super) beyond: Tally,
}

/// What entry and exit take around one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) median: Nanos,
    /// The most that counts as entry and exit.
    pub(super) most: Nanos,
}

impl Bound {
    /// By residuals, where there are enough; s is `least` at least. Lengths are known to within `noise`.
    fn of(residuals: &Residuals, least: f64, noise: Nanos) -> Option<Self> {
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

    /// The same for what is of another shape.
    fn of_another_shape(self) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
        let most = Nanos((self.most.0 as f64 * OTHER_SHAPES) as i64);
        Self { most, ..self }
    }
}

/// The bounds that there are enough gaps for.
fn bounds_of<K: Copy + Eq + Hash>(
    residuals: &HashMap<K, Residuals, FixedState>,
    bound: impl Fn(&Residuals) -> Option<Bound>,
) -> HashMap<K, Bound, FixedState> {
    let bounds = residuals
        .iter()
        .filter_map(|(&key, of)| Some((key, bound(of)?)));
    bounds.collect()
}

/// The bounds of all signatures.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// By signature.
    bounds: Vec<Option<Bound>>,
    first: Vec<(SourceId, Shape)>,
}

impl Bounds {
    /// From the residuals of each signature, which come as often as there are CPUs. Lengths are known
    /// to within `noise`.
    pub(super) fn new<'a>(
        signatures: &Signatures,
        residuals: impl Iterator<Item = (usize, &'a Residuals)>,
        noise: Nanos,
    ) -> Self {
        let mut of_each = vec![Residuals::default(); signatures.first.len()];
        let mut by_first: HashMap<(SourceId, Shape), Residuals, FixedState> = HashMap::default();
        let mut by_shape: HashMap<Shape, Residuals, FixedState> = HashMap::default();
        let mut of_all = Residuals::default();
        for (signature, residuals) in residuals {
            of_each[signature].merge(residuals);
            let first = signatures.first[signature];
            by_first.entry(first).or_default().merge(residuals);
            by_shape.entry(first.1).or_default().merge(residuals);
            of_all.merge(residuals);
        }
        let many = |residuals: &Residuals| Bound::of(residuals, LEAST_SPREAD_OF_MANY, noise);
        let by_first = bounds_of(&by_first, many);
        let by_shape = bounds_of(&by_shape, many);
        let of_all = many(&of_all).map(Bound::of_another_shape);
        let bound = |(own, first): (&Residuals, &(SourceId, Shape))| {
            Bound::of(own, LEAST_SPREAD, noise)
                .or_else(|| by_first.get(first).copied())
                .or_else(|| by_shape.get(&first.1).copied())
                .or(of_all)
        };
        Self {
            bounds: of_each.iter().zip(&signatures.first).map(bound).collect(),
            first: signatures.first.clone(),
        }
    }

    /// The bound of a signature, where there is one.
    pub(super) fn of(&self, signature: usize) -> Option<Bound> {
        self.bounds.get(signature).copied().flatten()
    }

    /// The source of the first row of a signature.
    pub(super) fn first(&self, signature: usize) -> SourceId {
        self.first[signature].0
    }

    /// What the bounds moved, by the account that the gaps' first rows are of, what moved most first.
    pub(super) fn statement<'a>(
        &self,
        residuals: impl Iterator<Item = (usize, &'a Residuals)>,
        registry: &Registry,
    ) -> Vec<EntryExitBound> {
        let mut around: Vec<EntryExitBound> = Vec::new();
        for (signature, residuals) in residuals {
            let Some(bound) = self.of(signature) else {
                continue;
            };
            let beyond = residuals.split(Some(bound)).beyond;
            if residuals.count() == 0 {
                continue;
            }
            let (_, name) = registry.describe(registry.account_of(self.first(signature)));
            let place = around.iter().position(|known| *known.around == **name);
            let place = place.unwrap_or_else(|| {
                around.push(EntryExitBound {
                    around: name.to_string(),
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
            by_time.then_with(|| a.around.cmp(&b.around))
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

    /// Residuals of `median` ns whose logarithms are spread by 10 %, and their exact sum.
    fn residuals(median: f64, count: u32) -> Residuals {
        let mut residuals = Residuals::default();
        for n in 0..count {
            // The quantiles of a logistic distribution, which has longer tails than a normal one.
            let q = (f64::from(n) + 0.5) / f64::from(count);
            let normal = (q / (1.0 - q)).ln() / 1.8;
            #[expect(clippy::cast_possible_truncation, reason = "a time in ns")]
            residuals.add(Nanos((median * (0.1 * normal).exp()) as i64));
        }
        residuals
    }

    #[test]
    fn what_entry_and_exit_take_is_within_the_bound() {
        let usual = residuals(1_000.0, 1_000);
        let bound = Bound::of(&usual, LEAST_SPREAD, Nanos(10)).unwrap();
        assert!((950..1_050).contains(&bound.median.0), "{bound:?}");
        assert!((1_700..2_000).contains(&bound.most.0), "{bound:?}");
        let beyond = usual.split(Some(bound)).beyond;
        assert!(beyond.count <= 5, "{beyond:?}");
    }

    #[test]
    fn what_is_added_to_some_is_beyond_it() {
        let mut all = residuals(1_000.0, 1_000);
        for _ in 0..20 {
            all.add(Nanos(5_000_000));
        }
        let bound = Bound::of(&all, LEAST_SPREAD, Nanos(10)).unwrap();
        let beyond = all.split(Some(bound)).beyond;
        assert!((20..25).contains(&beyond.count), "{beyond:?}");
        let off = beyond.time.0 - 20 * 4_999_000;
        assert!(off.abs() < 20_000, "{beyond:?}");
    }

    #[test]
    fn a_few_have_no_bound() {
        let few = residuals(1_000.0, 49);
        assert_eq!(Bound::of(&few, LEAST_SPREAD, Nanos(10)), None);
        assert_eq!(few.split(None).beyond.time, Nanos::ZERO);
    }

    /// Interrupts take 3.6 µs here, each as long as any other, and ways to a thread and back 13.
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
            let signature = signatures.of(&held(sources), shape).unwrap();
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
        let residuals = || all.iter().map(|(signature, of)| (*signature, of));
        let bounds = Bounds::new(&signatures, residuals(), Nanos(10));
        let none_beyond = |(signature, of): (usize, &Residuals)| {
            let beyond = of.split(bounds.of(signature)).beyond;
            assert_eq!(beyond.count, 0, "{signature}: {:?}", bounds.of(signature));
        };
        residuals().for_each(none_beyond);
        let most = |signature| bounds.of(signature).unwrap().most.0;
        assert!((6_000..7_000).contains(&most(tick)), "{}", most(tick));
        assert!((30_000..35_000).contains(&most(rare)), "{}", most(rare));
        // Few of its shape: by all, and far above.
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
