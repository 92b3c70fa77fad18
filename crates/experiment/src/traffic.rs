//! Factorial experiments with traffic: which factors there are, what their runs measured, and what follows.
//!
//! Nothing here sends a byte: whoever does gets the setup of each cell and hands over what came of it.

mod costs;
mod effects;
mod factors;

pub use effects::{Judged, MeasuredRun, RunFigures, blocks_to_resolve, judge, needed, spread};
pub use factors::{FACTORS, Factor, Factors, Setup, delay, loss, rate};

/// Most runs of an experiment: with pauses of a second an hour of them.
pub const MOST_RUNS: u64 = 3_000;

/// Most cells of an experiment.
pub const MOST_CELLS: usize = 256;

/// Blocks of a pilot, of which nothing but the spread is used.
pub const PILOT_BLOCKS: u64 = 3;
