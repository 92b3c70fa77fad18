//! Comparison of one metric between an arm and the first arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Comparison of one metric between an arm and the first arm, or between two lists of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Name of the metric.
    pub metric: String,
    /// Index of the arm. For two lists of numbers, 1.
    pub arm: usize,
    /// Values of the first arm.
    pub first: Option<ArmFigures>,
    /// Values of the arm compared with the first.
    pub second: Option<ArmFigures>,
    /// Number of blocks with values for both arms; `None` for lists of numbers, which are not
    /// paired.
    pub blocks: Option<u64>,
    /// Scale of `effect`, `noise` and `detectable`.
    pub scale: Scale,
    /// Effect of this arm relative to the first, and the conclusion.
    #[serde(flatten)]
    pub contrast: Contrast,
    /// Two-sided probability that chance alone separates the arms this far. Blocks are tested with
    /// the exact signed-rank test (Wilcoxon 1945), lists with the rank-sum test (Mann and Whitney
    /// 1947).
    #[serde(rename = "chance_probability")]
    pub chance: Option<f64>,
    /// Standard deviation of a block's difference if the first arm is compared with itself. It
    /// comes from the runs before the blocks.
    pub noise: Option<f64>,
    /// Effect that a trial with this number of blocks would detect with a power of 80 %, as
    /// estimated before the blocks.
    pub detectable: Option<f64>,
    /// The model's prediction; `None` if none was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// Observations that weaken the conclusion.
    pub checks: Vec<Check>,
}

/// The difference between two arms in one metric, with the conclusion. Every comparison that tests
/// differences reports them in this form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contrast {
    /// Difference, with its interval; `None` if there are too few values.
    pub effect: Option<Effect>,
    /// Two-sided probability that chance alone separates the arms this far, corrected for all tests
    /// in the document (Holm 1979).
    #[serde(rename = "corrected_probability")]
    pub chance: Option<f64>,
    /// Conclusion.
    pub verdict: Verdict,
}

impl Contrast {
    /// Whether the arms differ by more than chance explains; `None` if that was not tested.
    pub fn differs(&self) -> Option<bool> {
        self.chance.map(|_| self.verdict.differs())
    }
}

/// Statistics of an arm's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmFigures {
    /// Number of values.
    pub count: u64,
    /// Mean, in the metric's unit.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Standard deviation; 0 for a single value.
    pub deviation: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

/// Scale on which a difference is expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A share of the first arm's value: 0.02 means 2 % more. Used if all values are positive.
    Relative,
    /// The metric's unit.
    Absolute,
}

/// A difference, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// This arm's value minus the first arm's value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Effect {
    /// The difference `value`, with an interval that extends by `margin` to both sides.
    pub fn within(value: f64, margin: f64) -> Self {
        Self {
            value,
            low: value - margin,
            high: value + margin,
        }
    }

    /// The larger absolute value of the interval's ends.
    pub fn bound(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Whether the interval contains 0.
    pub fn may_be_none(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// The model's prediction for an arm's effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// File from which the model took its workload.
    pub load: String,
    /// Settings in the model, such as `slack=2ms`.
    pub settings: Vec<String>,
    /// Effect on the comparison's scale, from the medians of the model's runs. The interval is the
    /// range in which one more run's effect is expected. With a single run, it is just the effect.
    pub effect: Effect,
    /// Predicted minus measured effect; `None` if no effect was measured.
    pub error: Option<f64>,
}

/// Conclusion about an arm compared with the first arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Verdict {
    /// The arm is better than the first, by more than chance explains.
    Better,
    /// The arm is worse than the first, by more than chance explains.
    Worse,
    /// The arm differs from the first by more than chance explains, but it is unknown which
    /// direction is better.
    Differs,
    /// Any difference is at most `bound`, which is small enough to count as no difference.
    NoDifferenceBeyond {
        /// Bound, on the comparison's scale.
        bound: f64,
    },
    /// Neither a difference nor its absence can be shown.
    CannotTell {
        /// Approximate number of further blocks that would settle the question, if the effect is as
        /// large as it appears. For lists, the number of further values in each list. `None` if no
        /// reasonable number would be enough.
        more_blocks: Option<u64>,
    },
}

impl Default for Verdict {
    fn default() -> Self {
        Self::CannotTell { more_blocks: None }
    }
}

impl Verdict {
    /// Whether the arm differs from the first.
    pub const fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Differs)
    }
}

/// A property of the values that can invalidate a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Check {
    /// There are too few blocks or values for any difference to become significant.
    TooFew {
        /// Number of blocks or values available.
        have: u64,
        /// Number required for this many comparisons.
        need: u64,
    },
    /// Some successful runs, of one arm or both, have no value.
    Missing {
        /// Number of such runs.
        runs: u64,
    },
    /// All values of both arms are equal.
    Constant {
        /// The value, in the metric's unit.
        value: f64,
    },
    /// Both arms have exactly the same values.
    Identical,
    /// The blocks' level, averaged over both arms, rose or fell during the trial.
    Drift {
        /// Change from the first block to the last, on the comparison's scale.
        change: f64,
        /// Probability that chance alone produces such a trend (Spearman 1904).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The values depend on which arm came first in the block.
    Order {
        /// Effect in blocks that start with this arm minus the effect in blocks that start with the
        /// other arm, on the comparison's scale.
        change: f64,
        /// Probability that chance alone produces such a difference (rank-sum test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// An arm's values are in ascending or descending order. They were sorted before they were
    /// saved, or the machine drifted.
    Sorted {
        /// Whether the first arm's values are sorted.
        first: bool,
        /// Whether this arm's values are sorted.
        second: bool,
        /// Probability that chance alone produces such an order.
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The arms fail at different rates, so their remaining runs might not be comparable.
    Failures {
        /// Share of the first arm's runs that failed.
        first_share: f64,
        /// Share of this arm's runs that failed.
        second_share: f64,
        /// Probability that chance alone produces such a difference (Fisher's exact test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
}
