//! Paced loops: finds the frames in a thread's wake-ups, computes statistics about them, and
//! compares loops.
//!
//! - [`FrameStats`] takes the frames of any loop and computes their statistics.
//! - An audit that [follows](crate::Auditor::following) a process finds the process's frames in its
//!   threads' wake-ups. [`Auditor::finish_pace`](crate::Auditor::finish_pace) returns the statement
//!   about them, including the causes of late frames. [`FrameFinder`] finds only the frames.
//! - [`TurnStats`] takes the frames of loops that run alternately, and compares the loops using
//!   [`choices`].

mod alias;
mod book;
mod choice;
mod finder;
pub(crate) mod frames;
mod lateness;
mod paced;
mod process;
pub(crate) mod program;
pub(crate) mod rhythm;
mod tick;
mod times;
mod turns;
pub(crate) mod watch;

pub use alias::tick_alias;
pub use book::{Accounts, FrameStats, Terms};
pub use choice::{choices, common_quantile};
pub use finder::FrameFinder;
pub use paced::loop_statement;
pub use tick::sampled_at_tick;
pub use turns::TurnStats;
pub use watch::WatchedProcess;
