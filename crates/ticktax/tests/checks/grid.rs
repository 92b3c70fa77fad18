//! The frame schedule of a loop that drops the frames it missed.

use serde::{Deserialize, Serialize};
use ticktax_model::Nanos;

/// When a frame was due and when it started. It is due in the earliest slot of the schedule in
/// which no frame has started yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) due: Nanos,
    pub(crate) began: Nanos,
}

pub(crate) struct Grid {
    period: Nanos,
    /// The earliest slot in which no frame has started yet.
    due: Nanos,
    /// The slot in which the next frame will start.
    next: Nanos,
}

impl Grid {
    /// Creates a schedule whose first slot is one period after `now`.
    pub(crate) fn new(now: Nanos, period: Nanos) -> Self {
        Self {
            period,
            due: now + period,
            next: now + period,
        }
    }

    pub(crate) fn left(&self, now: Nanos) -> std::time::Duration {
        let left = (self.next - now).max(Nanos::ZERO);
        std::time::Duration::from_nanos(left.0.unsigned_abs())
    }

    /// Returns the due time and the start time of a frame that starts at `began`.
    pub(crate) fn frame(&self, began: Nanos) -> Reading {
        let due = self.due;
        Reading { due, began }
    }

    /// Ends the frame that started at `began`, and moves on to the next slot after `now`.
    pub(crate) fn end(&mut self, began: Nanos, now: Nanos) {
        while self.due + self.period <= began {
            self.due += self.period;
        }
        self.due += self.period;
        self.next = self.due;
        while self.next <= now {
            self.next += self.period;
        }
    }
}
