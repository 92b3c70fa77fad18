//! Finds a process's frames without any other analysis.

use ticktax_model::recording::{Row, RowSink};
use ticktax_model::{Nanos, SourceTable};

use super::watch::{Process, WatchedProcess};
use crate::timeline::{Keep, Timeline};

/// Takes the rows of a recording and infers a process's frames from its wake-ups.
#[derive(Debug)]
pub struct FrameFinder {
    timeline: Timeline,
    process: Process,
}

impl FrameFinder {
    /// Prepares to find the frames of process `pid`.
    pub fn new(pid: i32) -> Self {
        Self {
            timeline: Timeline::new(Keep::NOTHING),
            process: Process::new(pid),
        }
    }

    /// Returns the frames in the rows so far, watched from `begin` to `end`.
    pub fn frames(&self, begin: Nanos, end: Nanos) -> WatchedProcess {
        self.process.judge(begin, end, None)
    }
}

impl RowSink for FrameFinder {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, _) = self.timeline.event(sources, row);
        self.process.event(&event);
    }
}
