use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};

use crate::error::ObserveError;

/// An observation that proceeds step by step: a [`crate::Session`] or a [`crate::PacedLoop`].
pub trait Observation {
    /// Returns the next step, waiting for at most about 50 ms. After the end it returns
    /// [`Event::Ended`] again and again.
    ///
    /// # Errors
    /// If the observation cannot continue and has nothing to report.
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError>;

    /// Makes the next call of [`Observation::next_event`] end the observation. `signal` is the
    /// signal that caused it, if any.
    fn stop(&mut self, signal: Option<i32>);

    /// The sources of the rows so far.
    fn sources(&self) -> &SourceTable;
}

/// One step of an observation.
#[derive(Debug)]
pub enum Event<'a> {
    /// The first event of a session: everything is running.
    Started(&'a Started),
    /// The rows recorded since the last batch. Rows of one CPU are ordered by their end; rows of
    /// different CPUs come in any order.
    Rows {
        /// The sources of the rows. The table only grows.
        sources: &'a SourceTable,
        /// Never empty.
        rows: &'a [Row],
    },
    /// Follows each read of the buffers: once per interval of the plan, by default 20 times per
    /// second.
    Progress(Progress),
    /// The last event: everything about the recording except its rows.
    Ended(Box<Header>),
}

/// Facts known before the first row.
#[derive(Debug)]
pub struct Started {
    /// The machine, before anything was started.
    pub machine: Machine,
    /// The CPUs watched from the start.
    pub cpus: CpuList,
    /// Planned length of the session, if any.
    pub length: Option<Nanos>,
    /// Whether a command was started, which may write to the same terminal.
    pub command: bool,
    /// The capability level.
    pub level: Level,
    /// Why the tracer did not load, if it did not.
    pub no_tracer: Option<String>,
    /// The tracer's blind spots on this kernel.
    pub limitations: Vec<Limitation>,
    /// The watched process, if it existed at the start.
    pub process: Option<i32>,
    /// From when on the watched program is followed, on `CLOCK_MONOTONIC`; `None` where nobody's
    /// time is asked for. Rows that ended before are not about it.
    pub victim_begin: Option<Nanos>,
}

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When watching started, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Time since then.
    pub elapsed: Nanos,
}
