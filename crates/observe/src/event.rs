use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};

use crate::error::ObserveError;

/// An observation that proceeds step by step: a [`crate::Session`] or a [`crate::PacedLoop`].
pub trait Observation {
    /// Returns the next event, after at most about 50 ms. Once the observation has ended, every
    /// call returns [`Event::Ended`].
    ///
    /// # Errors
    /// Returns an error if the observation cannot continue and has nothing to report.
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError>;

    /// Makes the next call of [`Observation::next_event`] end the observation. `signal` is the
    /// signal that requested the end, or `None` if no signal did.
    fn stop(&mut self, signal: Option<i32>);

    /// Returns the sources of all rows so far.
    fn sources(&self) -> &SourceTable;
}

/// One event of an observation.
#[derive(Debug)]
pub enum Event<'a> {
    /// First event of a session: everything is running.
    Started(&'a Started),
    /// Rows recorded since the last batch. Rows from the same CPU are sorted by end time. Rows from
    /// different CPUs can come in any order.
    Rows {
        /// Sources of the rows. Later batches only add sources to this table.
        sources: &'a SourceTable,
        /// Recorded rows. The list is never empty.
        rows: &'a [Row],
    },
    /// Sent each time the buffers have been read. They are read once per
    /// [`Plan::interval`](crate::Plan::interval), by default 20 times per second.
    Progress(Progress),
    /// The last event. It contains everything about the recording except its rows.
    Ended(Box<Header>),
}

/// Facts that are known before the first row.
#[derive(Debug)]
pub struct Started {
    /// State of the machine before the session started anything.
    pub machine: Machine,
    /// CPUs that are watched from the start.
    pub cpus: CpuList,
    /// Planned length of the session, or `None` if it has no fixed length.
    pub length: Option<Nanos>,
    /// Whether the session started a command, which may write to the same terminal.
    pub command: bool,
    /// The capability level.
    pub level: Level,
    /// Why the tracer could not be loaded. `None` if it was loaded.
    pub no_tracer: Option<String>,
    /// The tracer's blind spots on this kernel.
    pub limitations: Vec<Limitation>,
    /// ID of the watched process, or `None` if it did not exist at the start.
    pub process: Option<i32>,
    /// When the tracer began to follow the watched program, on `CLOCK_MONOTONIC`. `None` if no
    /// program is watched. Rows that ended earlier say nothing about the program.
    pub victim_begin: Option<Nanos>,
}

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When watching started, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Time since watching started.
    pub elapsed: Nanos,
}
