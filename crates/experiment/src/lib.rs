//! Plans experiments, runs them and judges the results. No other crate repeats or schedules runs.
//!
//! A [`Case`] is a published investigation. It consists of a file with the published rows
//! ([`file::CaseFile`]) and a simulator model ([`cases`]). The file marks the rows that calibrate
//! the model, and sets the tolerance for the other rows. [`fit`] finds the free constants from the
//! calibration rows. [`judge`] compares the model with the published rows.
#![forbid(unsafe_code)]

pub mod axes;
pub mod cases;
pub mod conformance;
pub mod design;
pub mod detectable;
pub mod file;
pub mod fit;
pub mod judge;
pub mod kernels;
pub mod matrix;
pub mod own;
mod plan;
pub mod replay;
pub mod sensitivity;
pub mod statistics;
pub mod sweep;
pub mod vary;
pub mod whatif;

/// Default for the largest effect that counts as no difference, as a fraction.
pub const DIFFERENCE: f64 = 0.05;

pub use cases::{Case, all, find};
pub use file::{CaseError, CaseFile};
pub use fit::Fitted;
pub use judge::Judgement;
pub use own::OwnCase;
pub use plan::{Slot, plan};
