//! Factorial experiments with network traffic: their factors, the figures of their runs, and the
//! verdicts.
//!
//! This module sends nothing. The caller sends traffic with the setup of each cell and passes the
//! figures to [`judge`].

mod costs;
mod effects;
mod factors;

pub use effects::{Judged, MeasuredRun, RunFigures, blocks_to_resolve, judge, needed, spread};
pub use factors::{FACTORS, Factor, Factors, Setup, delay, loss, rate};

/// Maximum number of runs of an experiment. With pauses of one second they take about an hour.
pub const MOST_RUNS: u64 = 3_000;

/// Maximum number of cells of an experiment.
pub const MOST_CELLS: usize = 256;

/// Number of blocks of a pilot. Only their spread is used.
pub const PILOT_BLOCKS: u64 = 3;
