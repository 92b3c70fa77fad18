//! Trials are A/B tests whose arms are interleaved.
//!
//! This module plans the order of the runs, predicts the smallest detectable effect, and judges the
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

/// Maximum probability that a document reports one or more differences that are only chance.
pub const FALSE_VERDICTS: f64 = 0.05;
/// Probability that a trial finds an effect of the detectable size.
pub const POWER: f64 = 0.8;
/// Default for the largest effect that counts as no difference, as a fraction.
pub const DIFFERENCE: f64 = 0.05;
