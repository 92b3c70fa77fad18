//! What ticktax makes of a recording.
//!
//! Everything here is a pure function of a recording's rows and header: nothing reads a clock, a
//! file or the environment, and nothing prints. A recording of a live machine, of a lab guest and
//! of the simulator go through the same code.
#![forbid(unsafe_code)]

pub mod accounting;
mod auditor;
pub mod beats;
pub mod findings;
pub mod ledger;
pub mod pace;
mod summary;
pub mod tick;
pub mod victim;
pub mod workload;

pub use accounting::AccountingCheck;
pub use auditor::Auditor;
pub use beats::BeatFinder;
pub use ledger::Ledger;
pub use summary::{Summary, of_frames};
pub use victim::Victim;
pub use workload::WorkloadReader;
