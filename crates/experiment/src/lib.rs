//! Plans experiments, runs them and judges the results. No other crate repeats or schedules runs.
//!
//! A [`Case`] is a published investigation. It consists of a file with the published rows
//! ([`file::CaseFile`]) and a simulator model ([`cases`]). The file marks the rows to which the
//! model is fitted, and sets the tolerance for the other rows. [`fit`] determines the free
//! constants from the marked rows. [`judge`] compares the model with the published rows.
#![forbid(unsafe_code)]

pub mod axes;
pub mod cases;
pub mod changes;
pub mod conformance;
pub mod design;
pub mod file;
pub mod fit;
pub mod judge;
pub mod kernels;
pub mod matrix;
mod measures;
pub mod numbers;
pub mod own;
pub mod replay;
pub mod sensitivity;
pub mod statistics;
pub mod sweep;
pub mod text;
pub mod traffic;
pub mod trial;
pub mod vary;
pub mod whatif;

pub use cases::{Case, all, find};
pub use file::{CaseError, CaseFile};
pub use fit::Fitted;
pub use judge::Judgement;
pub use own::OwnCase;
