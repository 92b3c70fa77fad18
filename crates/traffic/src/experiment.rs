//! Factorial experiments with network traffic: their factors, figures and verdicts.
//!
//! This module sends no traffic. The caller sends it with each arm's setup, and passes the figures
//! to [`judge`].

mod costs;
mod effects;
mod factors;

pub use effects::{Judged, MeasuredRun, RunFigures, blocks_to_resolve, judge, needed, spread};
pub use factors::{FACTORS, Factor, Factors, Setup, delay, loss, rate};

/// Maximum number of runs in an experiment. With pauses of one second, they take about an hour.
pub const MOST_RUNS: u64 = 3_000;

/// Maximum number of arms in an experiment.
pub const MOST_ARMS: usize = 256;

/// Number of blocks in a pilot, which serves only to estimate the spread.
pub const PILOT_BLOCKS: u64 = 3;
