//! Plan, run, judge: the only place with a loop over runs.
//!
//! A [`Case`] is a published investigation: a file with the rows that were published, which of them
//! calibrate and how near the others must come ([`file::CaseFile`]), and a model in the simulator
//! ([`cases`]). [`judge`] puts both beside each other; [`fit`] finds the constants that the file
//! says are to be found, from the rows that it names.
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
