//! Trials: in which order arms run, what could be told apart before anything does, and what the runs tell.
//!
//! Everything here is a pure function of numbers; whoever runs a trial changes settings and measures.
//! The benchmark `trial_benchmark` measures how often verdicts are wrong.

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

/// The probability that any of a document's comparisons calls a difference what is chance, at most.
pub const FALSE_VERDICTS: f64 = 0.05;
/// The effect that can be detected is found with this probability.
pub const POWER: f64 = 0.8;
/// The largest effect that counts as none unless somebody says otherwise, as a share.
pub const DIFFERENCE: f64 = 0.05;
