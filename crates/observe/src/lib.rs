//! Live observation of this machine: starts, drains and closes the tracer, the probes and the
//! reader of `/proc` together.
//!
//! A [`Plan`] determines what to watch and how. [`Session::start`] starts a session. Call
//! [`Session::next_event`] until the session ends: it returns [`Event::Started`], then alternates
//! between [`Event::Rows`] and [`Event::Progress`], and finally returns [`Event::Ended`] with the
//! recording's header. This crate has no callbacks, prints nothing, reads no environment variables
//! and handles no signals. The caller decides what happens to the rows, and can end a session early
//! with [`Session::stop`].
//!
//! A [`Recorder`] watches without a time limit. It emits sums, plus every event around a trigger.
//!
//! A [`PacedLoop`] is driven in the same way (see [`Observation`]), but runs its own loop instead
//! of watching other programs. [`PacedTurns`] runs several variants of a loop in turn.

#![forbid(unsafe_code)]

mod autogroups;
mod buffers;
mod cgroups;
mod collector;
mod command;
mod error;
mod event;
mod flight;
mod governor;
mod guests;
mod head_start;
mod header;
mod memory;
mod paced;
mod plan;
mod probe;
mod running;
mod session;
mod turns;
mod victim;
mod witness;

pub use error::ObserveError;
pub use event::{Event, Observation, Progress, Started};
pub use flight::{
    FrameState, FrameStatus, FrozenWindow, PercentileStatus, ProgramWindow, Recorder,
    RecorderEvent, RecorderPlan, RecorderStarted, RecorderStatus, SumsWindow, Waker,
};
pub use head_start::HeadStart;
pub use paced::{LoopPlan, PacedLoop};
pub use plan::{Keep, Plan, ProbeChoice, Program};
pub use session::Session;
pub use ticktax_probes::gaps::GapProbe;
pub use ticktax_trace::{Counted, DropWatch, FrozenRows};
pub use turns::{PacedTurns, TurnsPlan};
