//! Reads and changes the settings of a live machine, and restores them even after a crash.
//!
//! A [`Knob`] is a row in the registry and describes one setting: what it does, which values are
//! valid, how risky it is to change, and by which mechanism it is read and written. A [`Session`]
//! changes settings and restores them when it ends. Before each change, it records the original
//! value in a journal on disk.

mod cgroup;
mod error;
#[cfg(test)]
mod fixture;
mod group;
mod journal;
mod knob;
mod mechanism;
pub mod registry;
mod session;
mod sys;
mod system;
mod target;
mod values;
mod watchdog;

pub use error::{KnobError, Trouble};
pub use group::{Controller, of_process as cgroup_of_process};
pub use journal::{OnStep, SessionStep};
pub use knob::{Knob, of_what};
pub use session::{Change, Consent, Session, undo, undo_observed};
pub use system::System;
pub use target::Target;
pub use watchdog::{Watchdog, stand_by};
