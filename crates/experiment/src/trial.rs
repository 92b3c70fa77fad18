//! Trials are A/B tests with interleaved arms.
//!
//! This module plans the order of runs, predicts the smallest detectable effect, and judges the
//! results. Everything outside [`run`] is a pure function of numbers. The benchmark
//! `trial_benchmark` measures how often the verdicts are false.

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

/// Maximum probability that a document reports at least one difference that is only chance.
pub const FALSE_VERDICTS: f64 = 0.05;
/// Probability of finding an effect that has the detectable size.
pub const POWER: f64 = 0.8;
/// Default for the largest effect that counts as no difference, as a fraction.
pub const DIFFERENCE: f64 = 0.05;
