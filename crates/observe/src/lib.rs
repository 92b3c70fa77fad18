//! One live observation of this machine: the tracer, the probes and `/proc`, started, drained and
//! closed together.
//!
//! A [`Plan`] says what to watch and how; [`Session::start`] begins, and
//! [`Session::next_event`] is then called until the session has ended: [`Event::Started`],
//! [`Event::Rows`] and [`Event::Progress`] by turns, and [`Event::Ended`] with the recording's
//! header. Nothing here calls back into its user, prints, reads the environment or handles
//! signals: whoever drives a session decides what becomes of its rows, and ends it early with
//! [`Session::stop`].

#![forbid(unsafe_code)]

mod command;
mod error;
mod event;
mod header;
mod plan;
mod probe;
mod session;
mod victim;

pub use error::ObserveError;
pub use event::{Event, Progress, Started};
pub use plan::{Keep, Plan, ProbeChoice, Program};
pub use session::Session;
