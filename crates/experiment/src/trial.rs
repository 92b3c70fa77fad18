//! Trials: A/B tests with interleaved arms.
//!
//! This module plans the order of runs, predicts the smallest detectable effect, and judges the
//! results. Everything outside [`run`] is a pure function of numbers. The benchmark
//! `trial_benchmark` measures the rate of false verdicts.

mod blocks;
mod checks;
mod detectable;
mod foretold;
mod judge;
mod lists;
mod plan;
pub mod run;

pub use detectable::{Detectable, detectable, fewest_blocks};
pub(crate) use detectable::{MOST_BLOCKS, least_effect_by_t, level};
pub use foretold::{Foretold, ForetoldError, read_prediction};
pub use judge::judge;
pub use lists::{compare_lists, fewest_values};
pub use plan::{Slot, plan};

/// Maximum probability that any comparison of a document reports a difference that is only chance.
pub const FALSE_VERDICTS: f64 = 0.05;
/// Probability of finding an effect of the detectable size.
pub const POWER: f64 = 0.8;
/// Largest effect that counts as no difference by default, as a share.
pub const DIFFERENCE: f64 = 0.05;
