//! Paced loops: from frames to figures, from a stranger's wakeups to frames, and from many loops to
//! a choice.
//!
//! - [`FrameStats`] takes frames, whoever ran them, and says what became of them.
//! - [`PaceWatch`] takes the rows of a recording in which a process was followed, and finds the
//!   frames in its threads' wakeups; with the recording's header it makes the statement.
//! - [`choices`] compares loops of several settings.

mod alias;
mod book;
mod choice;
pub(crate) mod frames;
mod paced;
mod process;
pub(crate) mod rhythm;
mod tick;
mod times;
pub(crate) mod watch;

pub use alias::tick_alias;
pub use book::{Accounts, FrameStats, Terms};
pub use choice::{choices, common_quantile};
pub use paced::loop_statement;
pub use tick::{sampled_at_tick, tick};
pub use times::tellable;
pub use watch::{PaceWatch, Watched};
