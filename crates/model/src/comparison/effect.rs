//! The difference between two arms of a comparison in one metric.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net_experiment::Term;

/// The difference between two arms in one metric, with everything known about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmEffect {
    /// Index of the metric.
    pub metric: usize,
    /// Index of the arm that `arm` is compared with.
    pub base: usize,
    /// Index of the compared arm.
    pub arm: usize,
    /// The values of an experiment's factors whose effect this is: one value for a main effect, and
    /// two for the extra effect of combining them. The effect is averaged over the values of all
    /// other factors. `arm` is the arm that differs from the first arm only in these values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<Term>,
    /// Scale of `effect`, `noise` and `detectable`.
    pub scale: Scale,
    /// Effect of the compared arm's settings relative to the base, and the conclusion drawn from
    /// it.
    #[serde(flatten)]
    pub contrast: Contrast,
    /// Two-sided probability that chance alone would make the arms differ at least this much.
    /// Blocks are tested with the exact signed-rank test (Wilcoxon 1945), lists with the rank-sum
    /// test (Mann and Whitney 1947).
    #[serde(
        default,
        rename = "chance_probability",
        skip_serializing_if = "Option::is_none"
    )]
    pub chance: Option<f64>,
    /// Effect in the unit of the metric, if `effect` is a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Effect>,
    /// Largest effect that still counts as agreement between a model and a measurement; `None`
    /// unless the effect is judged by this limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Number of blocks in which both arms have values; `None` if the values are not paired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Standard deviation of the difference within a block when the first arm is compared with
    /// itself. It is computed from the runs before the first block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Smallest effect that a trial with this number of blocks would detect with a probability
    /// (power) of 80 %, as estimated before the first block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable: Option<f64>,
    /// The model's prediction of the effect; `None` if none was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// Observations about the values that weaken the conclusion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// The difference between two arms in one metric, and the conclusion drawn from it. Every document
/// that tests differences contains them in this form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contrast {
    /// The difference, with its confidence interval; `None` if there are too few values to estimate
    /// it.
    pub effect: Option<Effect>,
    /// Two-sided probability that chance alone would make the arms differ at least this much,
    /// corrected for all tests in the document (Holm 1979).
    #[serde(rename = "corrected_probability")]
    pub chance: Option<f64>,
    /// Conclusion.
    pub verdict: Verdict,
}

impl Contrast {
    /// Judges a deviation from a model or a published figure solely by the largest accepted
    /// deviation, without testing for chance.
    pub fn tolerance(deviation: f64, limit: f64) -> Self {
        let agrees = deviation.abs() <= limit;
        Self {
            effect: Some(Effect::within(deviation, 0.0)),
            chance: None,
            verdict: if agrees {
                Verdict::NoDifferenceBeyond { bound: limit }
            } else {
                Verdict::Differs
            },
        }
    }

    /// Returns whether the arms differ by more than chance or the tolerance explains; `None` if
    /// this was not tested.
    pub fn differs(&self) -> Option<bool> {
        let is_open = matches!(self.verdict, Verdict::CannotTell { .. });
        (self.chance.is_some() || !is_open).then(|| self.verdict.differs())
    }
}

/// Scale for expressing differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// As a share of the first arm's value, so that 0.02 means 2 % more. Used if all values are
    /// positive.
    #[default]
    Relative,
    /// In the metric's unit.
    Absolute,
}

/// A difference, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Value of the compared arm minus the value of the first arm.
    pub value: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

impl Effect {
    /// Returns the difference `value` with its confidence interval, which extends from
    /// `value - margin` to `value + margin`.
    pub fn within(value: f64, margin: f64) -> Self {
        Self {
            value,
            low: value - margin,
            high: value + margin,
        }
    }

    /// Returns the distance from 0 to the far end of the confidence interval.
    pub fn bound(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Returns whether the confidence interval contains 0.
    pub fn may_be_none(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// The effect that the model predicts for an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// File that the model took the workload from.
    pub load: String,
    /// Settings of the arm in the model's terms, such as `slack=2ms`.
    pub settings: Vec<String>,
    /// Predicted effect on the scale of the comparison, computed from the medians of the model's
    /// runs. Its interval is the range in which the effect of one more run is expected. With only
    /// one run, both ends of the interval equal the effect.
    pub effect: Effect,
    /// Predicted effect minus measured effect; `None` if no effect was measured.
    pub error: Option<f64>,
}

/// Conclusion from comparing an arm with the first arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Verdict {
    /// The arm is better than the first arm, by more than chance explains.
    Better,
    /// The arm is worse than the first arm, by more than chance explains.
    Worse,
    /// The arm differs from the first arm by more than chance explains, but it is not known which
    /// direction is better.
    Differs,
    /// The difference is at most `bound`, so it is too small to count as a difference.
    NoDifferenceBeyond {
        /// Largest possible difference, on the scale of the comparison.
        bound: f64,
    },
    /// The values prove neither that the arms differ nor that they are equal.
    CannotTell {
        /// Roughly how many more blocks would decide the question if the effect is as large as it
        /// appears. For lists, how many more values in each. `None` if no reasonable number would
        /// be enough.
        more_blocks: Option<u64>,
    },
}

impl Default for Verdict {
    fn default() -> Self {
        Self::CannotTell { more_blocks: None }
    }
}

impl Verdict {
    /// Returns whether the conclusion is that the arms differ.
    pub const fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Differs)
    }
}

/// A property of the values that can invalidate a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Check {
    /// There are so few blocks or values that no difference could be significant.
    TooFew {
        /// Number of blocks or values available.
        have: u64,
        /// Number of blocks or values needed for this number of comparisons.
        need: u64,
    },
    /// Some successful runs of one or both arms have no value for this metric.
    Missing {
        /// Number of successful runs without a value.
        runs: u64,
    },
    /// All values of both arms are the same.
    Constant {
        /// The value that all runs of both arms share, in the metric's unit.
        value: f64,
    },
    /// Both arms have exactly the same list of values.
    Identical,
    /// The mean of both arms' values in a block rose or fell during the trial.
    Drift {
        /// Change of the mean value from the first block to the last, on the scale of the
        /// comparison.
        change: f64,
        /// Probability that chance alone would produce such a trend (Spearman 1904).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The values in a block depend on which arm came first in it.
    Order {
        /// Effect in the blocks that start with the compared arm minus the effect in the blocks
        /// that start with the first arm, on the scale of the comparison.
        change: f64,
        /// Probability that chance alone would produce such a difference (rank-sum test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The values of an arm are in ascending or descending order. Either they were sorted before
    /// they were saved, or the machine drifted during the measurement.
    Sorted {
        /// Whether the values of the first arm are in order.
        first: bool,
        /// Whether the values of the compared arm are in order.
        second: bool,
        /// Probability that chance alone would produce such an order.
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The values were counted in bins that are too wide for a verdict.
    Rounded {
        /// Largest error of the difference that the bins cause, in the metric's unit.
        error: f64,
    },
    /// The arms fail at different rates, so the values of their successful runs might not be
    /// comparable.
    Failures {
        /// Share of the first arm's runs that failed.
        first_share: f64,
        /// Share of the compared arm's runs that failed.
        second_share: f64,
        /// Probability that chance alone would produce such a difference (Fisher's exact test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
}
