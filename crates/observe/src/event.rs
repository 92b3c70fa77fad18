//! The events of an observation.

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};

use crate::error::ObserveError;

/// Something that is observed step by step: a [`crate::Session`] or a [`crate::PacedLoop`].
pub trait Observation {
    /// The next step; waits for it where there is none yet, some 50 ms at most. Once it has ended, it
    /// is [`Event::Ended`] again and again.
    ///
    /// # Errors
    /// What is observed cannot go on, and has left nothing to report.
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError>;

    /// Ends it with the next call of [`Observation::next_event`], because of `signal` where there was
    /// one.
    fn stop(&mut self, signal: Option<i32>);

    /// The sources that the rows so far name.
    fn sources(&self) -> &SourceTable;
}

/// One step of an observation.
#[derive(Debug)]
pub enum Event<'a> {
    /// Comes first and once, of a session: everything runs.
    Started(&'a Started),
    /// What was recorded since the last batch. Rows of one CPU come in the order in which they
    /// ended; rows of different CPUs come in any order.
    Rows {
        /// The sources that the rows name; it only grows.
        sources: &'a SourceTable,
        /// At least one.
        rows: &'a [Row],
    },
    /// Comes after each look at the buffers: once an interval of the plan, twenty times a second by default.
    Progress(Progress),
    /// Comes last: everything about the recording but its rows.
    Ended(Box<Header>),
}

/// What is known before the first row.
#[derive(Debug)]
pub struct Started {
    /// The machine, as it was before anything was started.
    pub machine: Machine,
    /// The CPUs that are watched from the beginning.
    pub cpus: CpuList,
    /// How long they will be, where the plan says so.
    pub length: Option<Nanos>,
    /// Whether a command was started, which may write to the same terminal.
    pub command: bool,
    /// How much can be seen.
    pub level: Level,
    /// Why it is no more, where the tracer does not load.
    pub no_tracer: Option<String>,
    /// What the tracer cannot see on this kernel.
    pub limitations: Vec<Limitation>,
    /// The process whose time is asked for, where it is one that was there.
    pub process: Option<i32>,
    /// From when on the watched program is followed, on `CLOCK_MONOTONIC`; `None` where nobody's
    /// time is asked for. Rows that ended before are not about it.
    pub victim_begin: Option<Nanos>,
}

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When the watching began, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// How long it has been going on.
    pub elapsed: Nanos,
}
