//! One metric of one arm beside the first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One metric of one arm beside the first arm, or of one list of numbers beside another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The metric's name.
    pub metric: String,
    /// The arm, by its place among the arms; 1 for the second of two lists.
    pub arm: usize,
    /// The first arm's values.
    pub first: Option<ArmFigures>,
    /// This arm's.
    pub second: Option<ArmFigures>,
    /// Blocks with values of both arms; of lists, `None`: nothing pairs their values.
    pub blocks: Option<u64>,
    /// What effect, noise and what could be detected are in.
    pub scale: Scale,
    /// What this arm changes; `None` of too few values.
    pub effect: Option<Effect>,
    /// The probability that chance alone sets the arms so far apart, two-sided: of blocks, the exact
    /// signed-rank test (Wilcoxon 1945), of lists the rank-sum test (Mann and Whitney 1947).
    #[serde(rename = "chance_probability")]
    pub chance: Option<f64>,
    /// The same, all comparisons of the document together (Holm 1979).
    #[serde(rename = "corrected_probability")]
    pub chance_corrected: Option<f64>,
    /// The first arm beside itself: the standard deviation of a block's difference, by the runs before the blocks.
    pub noise: Option<f64>,
    /// The effect that a trial of so many blocks finds in four of five cases, as it was known before the blocks.
    pub detectable: Option<f64>,
    /// What a model had said of it; `None` where none was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// What follows from all this.
    pub verdict: Verdict,
    /// What speaks against it.
    pub checks: Vec<Check>,
}

/// The values of an arm that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmFigures {
    /// How many.
    pub count: u64,
    /// Their mean, in the metric's unit.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// Their standard deviation; 0 of one.
    pub deviation: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// What a difference is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A share of the first arm: 0.02 is 2 % more. Where all values are above 0.
    Relative,
    /// The metric's unit.
    Absolute,
}

/// A difference and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// This arm less the first.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Effect {
    /// The smallest bound on both sides of 0 that the interval keeps to.
    pub fn bound(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Whether the interval has 0 in it.
    pub fn may_be_none(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// What a model had said that an arm would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// The file that the work of the model's runs was taken from.
    pub load: String,
    /// What was set in the model, such as `slack=2ms`.
    pub settings: Vec<String>,
    /// The effect, in the comparison's scale, by the medians of the model's runs. Its interval is what the effect
    /// of one more run is to be expected within; of a single run it is the effect itself.
    pub effect: Effect,
    /// That effect less the one that was measured; `None` where none was.
    pub error: Option<f64>,
}

/// What is to be thought of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Verdict {
    /// It differs from the first by more than chance, for the better.
    Better,
    /// For the worse.
    Worse,
    /// It differs, and nobody said which way is better.
    Differs,
    /// The interval keeps to this bound, which is no larger than what was to count as none.
    NoDifferenceBeyond {
        /// In the comparison's scale.
        bound: f64,
    },
    /// Neither can be said.
    CannotTell {
        /// About how many more blocks (of lists, values of each) would tell, if the effect is what it looks like;
        /// `None` where no number within reason would.
        more_blocks: Option<u64>,
    },
}

impl Verdict {
    /// Whether the arm differs from the first.
    pub const fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Differs)
    }
}

/// Something about the values that a verdict may suffer from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Check {
    /// There are too few blocks (or values) for any difference to count.
    TooFew {
        /// Those that there are.
        have: u64,
        /// Those that it takes, of so many comparisons.
        need: u64,
    },
    /// Successful runs of an arm, or of both, have no value.
    Missing {
        /// Such runs.
        runs: u64,
    },
    /// Every value of both arms is the same.
    Constant {
        /// That value, in the metric's unit.
        value: f64,
    },
    /// Both arms have the same values, one by one.
    Identical,
    /// The level of the blocks, which is the mean of both arms, rose or fell over the trial.
    Drift {
        /// From the first block to the last, in the comparison's scale.
        change: f64,
        /// The probability of such a trend by chance (Spearman 1904).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// Values depend on which arm was first in the block.
    Order {
        /// Effect where this arm was first less the effect where the other was, in the comparison's scale.
        change: f64,
        /// The probability of it by chance (rank-sum test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The values of an arm, in their order, ascend or descend: sorted before they were written down,
    /// or the machine drifted.
    Sorted {
        /// Whether the first arm's are.
        first: bool,
        /// Whether this arm's are.
        second: bool,
        /// The probability that those come so by chance.
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
    /// The two arms do not succeed equally often: what is left of them may not be alike.
    Failures {
        /// The share of the first arm's runs that failed.
        first_share: f64,
        /// The share of this arm's.
        second_share: f64,
        /// The probability of such a difference by chance (Fisher's exact test).
        #[serde(rename = "chance_probability")]
        chance: f64,
    },
}
