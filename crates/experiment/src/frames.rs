//! The frames of a simulated task, taken from the rows of its recording.

use ticktax_model::SourceTable;
use ticktax_model::pace::Frame;
use ticktax_model::recording::{Row, RowSink};
use ticktax_sim::{Followed, Setup, SetupError, TaskId, follow};

/// Keeps the frames among rows.
#[derive(Debug, Default)]
pub(crate) struct Frames(pub(crate) Vec<Frame>);

impl RowSink for Frames {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        if let Row::Frame(frame) = row {
            self.0.push(frame.frame());
        }
    }
}

/// Runs a simulation for the frames of `task` alone.
///
/// # Errors
/// Where the setup makes no sense, or has no such task.
pub(crate) fn frames(setup: &Setup, task: TaskId) -> Result<(Followed, Vec<Frame>), SetupError> {
    let mut frames = Frames::default();
    let followed = follow(setup, task, &mut frames)?;
    Ok((followed, frames.0))
}
