//! Trials: A/B tests in which the runs of all arms are interleaved. An arm is one combination of
//! settings.
//!
//! This module plans the order of the runs, predicts the smallest effect that can be detected, and
//! judges the results. Everything outside [`run`] is a pure function of numbers. The benchmark
//! `trial_benchmark` measures how often the verdicts are wrong.

mod blocks;
mod checks;
mod detectable;
mod foretold;
mod judge;
mod lists;
mod plan;
pub mod run;

pub use detectable::{Detectable, detectable, fewest_blocks};
pub(crate) use detectable::{fewest_that, least_effect_by_t, mean_effect};
pub use foretold::{Foretold, ForetoldError, read_prediction};
pub use judge::judge;
pub use lists::{compare_lists, fewest_values};
pub use plan::{Slot, plan};
pub use ticktax_analysis::judge::FALSE_VERDICTS;

/// Probability that a trial finds an effect of the size that is reported as detectable.
pub const POWER: f64 = 0.8;
/// Default for the largest effect that counts as no difference, as a fraction of the first arm's
/// value.
pub const DIFFERENCE: f64 = 0.05;
