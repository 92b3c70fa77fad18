//! Experiments with network traffic that cover all combinations of several factors. This module
//! contains their factors, figures and verdicts.
//!
//! It doesn't send any traffic. The caller sends it with the setup of each arm, and passes the
//! figures to [`judge`].

mod costs;
mod effects;
mod factors;

pub use effects::{Judged, MeasuredRun, RunFigures, blocks_to_resolve, judge, needed, spread};
pub use factors::{FACTORS, Factor, Factors, Setup, delay, loss, rate};

/// Maximum number of runs in an experiment. With pauses of one second, this many runs take about an
/// hour.
pub const MOST_RUNS: u64 = 3_000;

/// Maximum number of arms in an experiment.
pub const MOST_ARMS: usize = 256;

/// Number of blocks in a pilot, a short experiment that only estimates the spread.
pub const PILOT_BLOCKS: u64 = 3;
