//! Compares percentiles of two distributions.
//!
//! The interval of a percentile has two values of the sample as its ends, and their ranks follow
//! from the binomial distribution ([`QuantileRanks`]). The intervals of the two arms give the
//! interval of the difference ([`difference_of_estimates`]). If the values are positive, all this
//! is done with their logarithms, which gives the interval of the ratio: ranks stay the same.
//!
//! A histogram has no values, only bins. The error of a bin is bounded but not random, so the
//! interval of the difference is extended by the sum of the largest errors.

use ticktax_analysis::judge::{Evidence, FALSE_VERDICTS, corrected};
use ticktax_experiment::detectable::effect_of;
use ticktax_experiment::statistics::{QuantileRanks, difference_of_estimates};
use ticktax_model::comparison::{
    ArmEffect, Better, Check, ComparedDistribution, Contrast, DistributionsRecord, Effect, Figure,
    Metric, NoInterval, Scale, Verdict, WithoutInterval,
};

use super::histogram::{Bin, Histogram};
use super::{Distribution, Percentile, Values};

/// Percentiles that are compared if both files have counts.
const PERCENTILES: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
/// Percentiles that are compared if a file has only percentiles, if it has them.
const SUMMARIES: [&str; 6] = ["p50", "p75", "p90", "p95", "p99", "p99.9"];
const MAXIMUM: &str = "max";
/// Smallest probability that is distinguished from 0.
const SMALLEST_CHANCE: f64 = 1e-12;
/// Number of halvings to find a probability, which leave an error of 1e-9 of its logarithm.
const HALVINGS: u32 = 35;
/// Ratio of an effect that 4 of 5 comparisons find to the margin of their intervals:
/// (1.96 + 0.84) / 1.96.
const POWER_MARGIN: f64 = 1.43;
/// Maximum number of additional values to suggest.
const MOST_MORE: f64 = 1e9;

/// A comparison of distributions, without the arms' names.
pub(crate) struct Compared {
    pub(crate) metrics: Vec<Metric>,
    /// Figures of each arm, for each metric.
    pub(crate) figures: [Vec<Option<Figure>>; 2],
    pub(crate) effects: Vec<ArmEffect>,
    pub(crate) record: DistributionsRecord,
}

/// Compares pairs of distributions. Returns their percentiles and the differences.
///
/// `better` overrides which values are better, and `difference` is the largest effect that counts
/// as none, as a share of the first arm's value.
pub(crate) fn compare(
    pairs: &[[&Distribution; 2]],
    better: Option<Better>,
    difference: f64,
) -> Compared {
    let mut compared = Compared {
        metrics: Vec::new(),
        figures: [Vec::new(), Vec::new()],
        effects: Vec::new(),
        record: DistributionsRecord {
            difference,
            ..DistributionsRecord::default()
        },
    };
    let mut drafts = Vec::new();
    for pair in pairs {
        let [a, b] = pair;
        let name = if pairs.len() > 1 { &*a.name } else { "" };
        let common = if a.better == b.better {
            a.better
        } else {
            Better::Unknown
        };
        compared.record.compared.push(ComparedDistribution {
            name: name.to_owned(),
            counts: [a, b].map(|side| match &side.values {
                Values::Counted(histogram) => Some(histogram.count()),
                Values::Percentiles(_) => None,
            }),
        });
        for percentile in percentiles(a, b) {
            let space = if name.is_empty() { "" } else { " " };
            let id = format!("{name}{space}{percentile}");
            let metric = Metric::new(&id, a.unit, better.unwrap_or(common));
            drafts.extend(compared.add(metric, percentile, pair));
        }
    }
    let chances: Vec<Option<f64>> = drafts.iter().map(|draft| draft.effect.chance).collect();
    let corrected = corrected(&chances, chances.len());
    for (draft, chance) in drafts.iter_mut().zip(corrected) {
        let metric = draft.effect.metric;
        draft.effect.contrast.chance = chance;
        let first = compared.figures[0][metric].and_then(|figure| figure.value);
        let better = compared.metrics[metric].better;
        draft.conclude(better, first.unwrap_or_default(), difference);
    }
    compared.effects = drafts.into_iter().map(|draft| draft.effect).collect();
    compared
}

/// Returns the names of the percentiles that both distributions have.
fn percentiles(a: &Distribution, b: &Distribution) -> Vec<&'static str> {
    let are_counted = [a, b].map(|side| matches!(side.values, Values::Counted(_)));
    let names: &[&str] = if are_counted == [true, true] {
        &PERCENTILES
    } else {
        &SUMMARIES
    };
    let has = |side: &Distribution, name: &str| match &side.values {
        Values::Counted(_) => true,
        Values::Percentiles(all) => all.iter().any(|one| one.name == name),
    };
    let names = names.iter().chain([&MAXIMUM]).copied();
    names.filter(|name| has(a, name) && has(b, name)).collect()
}

impl Compared {
    /// Adds a metric with its figures. Returns its effect if both arms have an interval.
    fn add(
        &mut self,
        metric: Metric,
        percentile: &str,
        pair: &[&Distribution; 2],
    ) -> Option<Draft> {
        let index = self.metrics.len();
        self.metrics.push(metric);
        let quantile = quantile(percentile);
        let sides: Vec<Side<'_>> = pair
            .iter()
            .map(|side| Side::new(side, percentile))
            .collect();
        let mut reason = quantile.is_none().then_some(NoInterval::Maximum);
        for (arm, (side, figures)) in sides.iter().zip(&mut self.figures).enumerate() {
            let interval = side.interval(arm, FALSE_VERDICTS);
            let ends = interval
                .as_ref()
                .ok()
                .map(|[low, high]| (low.low, high.high));
            figures.push(side.value().map(|value| Figure {
                confidence: ends,
                ..Figure::from(value)
            }));
            reason = reason.or(interval.err());
        }
        if let Some(reason) = reason {
            let without = WithoutInterval {
                metric: index,
                reason,
            };
            self.record.without_interval.push(without);
            return None;
        }
        let mut draft = sides[0].compared_with(&sides[1])?;
        draft.effect.metric = index;
        Some(draft)
    }
}

/// Returns the quantile with this name, such as `p99`; `None` for the maximum.
fn quantile(name: &str) -> Option<f64> {
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    Some(percent / 100.0)
}

/// One arm's value of a metric.
enum Side<'a> {
    /// A percentile of a histogram.
    Counted {
        histogram: &'a Histogram,
        ranks: QuantileRanks,
        quantile: f64,
    },
    /// A value without an interval.
    Plain(Option<f64>, NoInterval),
}

/// The additive difference between two arms.
struct Difference {
    /// The difference and its interval, as if each value were the one that its bin stands for.
    exact: Effect,
    /// Largest error of the interval's lower end that the bins cause.
    low_error: f64,
    /// Largest error of its upper end.
    high_error: f64,
}

impl Difference {
    /// Returns the difference with an interval that allows for the bins.
    fn widened(&self) -> Effect {
        Effect {
            value: self.exact.value,
            low: self.exact.low - self.low_error,
            high: self.exact.high + self.high_error,
        }
    }
}

/// An effect that has no verdict yet.
struct Draft {
    effect: ArmEffect,
    /// The effect and its interval without the errors of bins.
    exact: Effect,
    /// Largest error that the bins cause, on the effect's scale.
    error: f64,
    /// Number of values in the arm that has fewer.
    count: u64,
}

impl<'a> Side<'a> {
    fn new(distribution: &'a Distribution, percentile: &str) -> Self {
        match (&distribution.values, quantile(percentile)) {
            (Values::Counted(histogram), Some(quantile)) => Self::Counted {
                histogram,
                ranks: QuantileRanks::new(histogram.count(), quantile),
                quantile,
            },
            (Values::Counted(histogram), None) => Self::Plain(histogram.max(), NoInterval::Maximum),
            (Values::Percentiles(all), _) => {
                let named = |one: &&Percentile| one.name == percentile;
                let value = all.iter().find(named).map(|one| one.value);
                Self::Plain(value, NoInterval::PercentilesOnly { arm: 0 })
            }
        }
    }

    fn value(&self) -> Option<f64> {
        match self {
            Self::Counted {
                histogram, ranks, ..
            } => histogram.at(ranks.estimate()).map(|bin| bin.value),
            Self::Plain(value, _) => *value,
        }
    }

    /// Returns the bins at the ends of the interval that misses with the probability `misses`.
    fn interval(&self, arm: usize, misses: f64) -> Result<[Bin; 2], NoInterval> {
        let (histogram, ranks, quantile) = match self {
            Self::Counted {
                histogram,
                ranks,
                quantile,
            } => (histogram, ranks, *quantile),
            Self::Plain(_, NoInterval::PercentilesOnly { .. }) => {
                return Err(NoInterval::PercentilesOnly { arm });
            }
            Self::Plain(_, reason) => return Err(*reason),
        };
        let (low, high) = ranks.interval(misses).ok_or_else(|| NoInterval::TooFew {
            arm,
            have: histogram.count(),
            need: QuantileRanks::fewest(quantile, misses),
        })?;
        let is_known = histogram.at(ranks.estimate()).is_some();
        let ends = histogram.bounds(low).zip(histogram.bounds(high));
        match ends.filter(|_| is_known) {
            Some((low, high)) => Ok([low, high]),
            None => Err(NoInterval::OutOfRange { arm }),
        }
    }

    /// Compares `other` with this arm. Returns `None` if an arm has no interval.
    fn compared_with(&self, other: &Self) -> Option<Draft> {
        let is_positive = |side: &Self| {
            let [low, _] = side.interval(0, FALSE_VERDICTS).ok()?;
            Some(low.low > 0.0 && low.value > 0.0)
        };
        let scale = if is_positive(self)? && is_positive(other)? {
            Scale::Relative
        } else {
            Scale::Absolute
        };
        let found = self.difference(other, scale, FALSE_VERDICTS)?;
        let shown = |effect: Effect| Effect {
            value: effect_of(scale, effect.value),
            low: effect_of(scale, effect.low),
            high: effect_of(scale, effect.high),
        };
        Some(Draft {
            effect: ArmEffect {
                arm: 1,
                scale,
                contrast: Contrast {
                    effect: Some(shown(found.widened())),
                    ..Contrast::default()
                },
                chance: Some(self.chance(other, scale)),
                ..ArmEffect::default()
            },
            exact: shown(found.exact),
            error: effect_of(scale, found.low_error.max(found.high_error)),
            count: self.count().min(other.count()),
        })
    }

    fn count(&self) -> u64 {
        match self {
            Self::Counted { histogram, .. } => histogram.count(),
            Self::Plain(..) => 0,
        }
    }

    fn difference(&self, other: &Self, scale: Scale, misses: f64) -> Option<Difference> {
        let added = |value: f64| match scale {
            Scale::Relative => value.ln(),
            Scale::Absolute => value,
        };
        let estimate = |side: &Self| {
            let [low, high] = side.interval(0, misses).ok()?;
            let effect = Effect {
                value: added(side.value()?),
                low: added(low.value),
                high: added(high.value),
            };
            let below = effect.low - added(low.low);
            Some((effect, below, added(high.high) - effect.high))
        };
        let (first, first_below, first_above) = estimate(self)?;
        let (second, second_below, second_above) = estimate(other)?;
        Some(Difference {
            exact: difference_of_estimates(first, second),
            low_error: second_below + first_above,
            high_error: second_above + first_below,
        })
    }

    /// Returns the probability at which the interval of the difference starts to exclude 0.
    fn chance(&self, other: &Self, scale: Scale) -> f64 {
        let excludes = |chance: f64| {
            let found = self.difference(other, scale, chance);
            found.is_some_and(|found| !found.widened().may_be_none())
        };
        if excludes(SMALLEST_CHANCE) {
            return SMALLEST_CHANCE;
        }
        let (mut included, mut excluded) = (SMALLEST_CHANCE.ln(), 0.0_f64);
        if !excludes(0.999) {
            return 1.0;
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(included, excluded);
            if excludes(middle.exp()) {
                excluded = middle;
            } else {
                included = middle;
            }
        }
        excluded.exp()
    }
}

impl Draft {
    /// Sets the verdict. `first` is the first arm's value.
    fn conclude(&mut self, better: Better, first: f64, difference: f64) {
        let contrast = &self.effect.contrast;
        let limit = match self.effect.scale {
            Scale::Relative => difference,
            Scale::Absolute => difference * first.abs(),
        };
        let evidence = Evidence {
            effect: contrast.effect,
            chance: contrast.chance,
            better,
            limit,
        };
        let size = self.exact.value.abs();
        let target = (size / POWER_MARGIN).max(limit - size);
        let verdict = evidence.verdict(|| {
            let margin =
                (self.exact.value - self.exact.low).max(self.exact.high - self.exact.value);
            let more = self.count as f64 * ((margin / target).powi(2) - 1.0);
            (more.max(1.0) <= MOST_MORE).then(|| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is 1 to the limit above"
                )]
                let more = more.max(1.0) as u64;
                more
            })
        });
        let is_open = matches!(verdict, Verdict::CannotTell { .. });
        let is_decided = !self.exact.may_be_none() || self.exact.bound() <= limit;
        if is_open && self.error > 0.0 && (is_decided || self.error >= target) {
            let error = match self.effect.scale {
                Scale::Relative => self.error * first,
                Scale::Absolute => self.error,
            };
            self.effect.checks.push(Check::Rounded { error });
        }
        self.effect.contrast.verdict = verdict;
    }
}
