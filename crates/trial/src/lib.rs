//! Compares measurements: A/B trials on this machine, two recordings, or two files of numbers or
//! distributions.
//!
//! [`run`] makes a trial's runs, and [`judge`] decides what they show. [`changes`] compares two
//! recordings, and [`numbers`] two files of numbers. Apart from [`run`] and the code that reads
//! files, everything is a pure function of numbers. The benchmark `trial_benchmark` measures how
//! often the verdicts are wrong.
#![forbid(unsafe_code)]

mod blocks;
pub mod changes;
mod checks;
mod distributions;
mod foretold;
mod judge;
mod lists;
mod measures;
pub mod numbers;
pub mod run;

pub use foretold::{Foretold, ForetoldError, Prediction, read_prediction};
pub use judge::judge;
pub use lists::{compare_lists, fewest_values};
