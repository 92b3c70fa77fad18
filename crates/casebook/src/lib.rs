//! The casebook: published investigations, modelled in the simulator and run on real kernels.
//!
//! A [`Case`] is a published investigation. It consists of a file with the published rows
//! ([`file::CaseFile`]) and a simulator model ([`cases`]). The file marks the rows that calibrate
//! the model, and sets the tolerance for the other rows. [`fit`] fits the free constants to the
//! calibration rows. [`judge`] compares the model with the published rows.
//!
//! [`replay`] runs a model's programs on real threads. [`kernels`] compares a case with results
//! from real kernels, and [`matrix`] compares the model in general with them ([`conformance`]).
#![forbid(unsafe_code)]

pub mod cases;
pub mod conformance;
pub mod file;
pub mod fit;
pub mod judge;
pub mod kernels;
pub mod matrix;
pub mod own;
pub mod replay;
pub mod sensitivity;

pub use cases::{Case, all, find};
pub use file::{CaseError, CaseFile};
pub use fit::Fitted;
pub use judge::Judgement;
pub use own::OwnCase;
