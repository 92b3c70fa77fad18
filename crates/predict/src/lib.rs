//! Predicts figures with the simulator, without running anything on the real kernel.
//!
//! [`whatif`] runs a recording's work, or a scenario, under other settings. [`sweep`] runs a
//! scenario at every arm of a grid. [`axes`] lists the scenario parameters that can be varied.
#![forbid(unsafe_code)]

pub mod axes;
pub mod sweep;
pub mod whatif;
