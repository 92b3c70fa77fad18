//! Paced loops: from frames to figures, from a stranger's wakeups to frames, and from many loops to
//! a choice.
//!
//! - [`FrameStats`] takes frames of any loop, and says what became of them.
//! - [`Auditor::frames_of`](crate::Auditor::frames_of) has an audit find the frames of a process in its
//!   threads' wakeups; [`Auditor::finish_pace`](crate::Auditor::finish_pace) makes the statement of
//!   them, with what held up those that were late.
//! - [`TurnStats`] takes the frames of loops that run by turns, and compares them by [`choices`].

mod alias;
mod book;
mod choice;
pub(crate) mod frames;
pub(crate) mod lateness;
mod paced;
mod process;
pub(crate) mod rhythm;
mod tick;
mod times;
mod turns;
pub(crate) mod watch;

pub use alias::tick_alias;
pub use book::{Accounts, FrameStats, Terms};
pub use choice::{choices, common_quantile};
pub use paced::loop_statement;
pub use tick::sampled_at_tick;
pub(crate) use times::buckets;
pub use times::tellable;
pub use turns::TurnStats;
pub use watch::Watched;
