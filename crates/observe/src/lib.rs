//! One live observation of this machine: the tracer, the probes and `/proc`, started, drained and
//! closed together.
//!
//! A [`Plan`] says what to watch and how; [`Session::start`] begins, and
//! [`Session::next_event`] is then called until the session has ended: [`Event::Started`],
//! [`Event::Rows`] and [`Event::Progress`] by turns, and [`Event::Ended`] with the recording's
//! header. Nothing here calls back into its user, prints, reads the environment or handles
//! signals: the caller decides what becomes of the rows, and ends a session early with
//! [`Session::stop`].
//!
//! A [`Recorder`] watches without end, and hands out sums and what happened around a trigger.
//!
//! A [`PacedLoop`] is driven in the same way ([`Observation`]): it runs a loop of its own in place of
//! watching others. [`PacedTurns`] runs variants of one by turns.

#![forbid(unsafe_code)]

mod autogroups;
mod cgroups;
mod collector;
mod command;
mod error;
mod event;
mod flight;
mod full;
mod header;
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
pub use paced::{LoopPlan, PacedLoop};
pub use plan::{Keep, Plan, ProbeChoice, Program};
pub use session::Session;
pub use ticktax_probes::gaps::GapProbe;
pub use ticktax_trace::{Counted, DropWatch, FrozenRows};
pub use turns::{PacedTurns, TurnsPlan};
