//! Settings of a live machine: what they are, reading and writing them, and putting them back whatever
//! happens.
//!
//! A [`Knob`] is a row of the registry: what it sets, what that trades, what its values are, and the
//! mechanism that reads and writes it. A [`Session`] changes settings and puts them back; what it is about to
//! change is in its journal, on the disk, before it does.

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
pub use journal::{OnStep, Step};
pub use knob::{Knob, of_what};
pub use session::{Change, Consent, Session, undo, undo_observed};
pub use system::System;
pub use target::Target;
pub use watchdog::{Watchdog, stand_by};
