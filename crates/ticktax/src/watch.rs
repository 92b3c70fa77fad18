//! Drives an observation: passes its rows to the analysis and the files until it ends or is
//! interrupted.

use crate::files::RowFiles;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Header, RowSink};
use ticktax_observe::{Event, Observation, Progress};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Passes every row to `analysis` and `files`, and calls `show` after each batch of rows, at least
/// about twenty times a second.
pub(crate) fn watch<A: RowSink>(
    observed: &mut dyn Observation,
    analysis: &mut A,
    files: &mut RowFiles,
    interrupt: &Interrupt,
    show: &mut dyn FnMut(&mut A, &SourceTable, Progress),
) -> Result<Box<Header>, Failure> {
    loop {
        match observed.next_event()? {
            Event::Started(_) => {}
            Event::Rows { sources, rows } => {
                for row in rows {
                    analysis.row(sources, row);
                    files.row(sources, row);
                }
            }
            Event::Progress(progress) => show(analysis, observed.sources(), progress),
            Event::Ended(header) => return Ok(header),
        }
        if let Some(signal) = interrupt.signal() {
            observed.stop(Some(signal));
        }
    }
}
