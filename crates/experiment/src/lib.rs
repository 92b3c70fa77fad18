//! The design and statistics that all experiments share. Nothing here runs an experiment.
//!
//! [`vary`] lists an experiment's arms, [`plan`](fn@plan) orders its runs, and [`design`]
//! determines which effects it can estimate. [`detectable`] estimates the smallest effect it can
//! detect. [`statistics`] contains tests and intervals for small samples.
#![forbid(unsafe_code)]

pub mod design;
pub mod detectable;
mod plan;
pub mod statistics;
pub mod vary;

pub use plan::{Slot, plan};

/// Largest effect that counts as no difference by default, as a fraction.
pub const DIFFERENCE: f64 = 0.05;
