//! The grid of a loop that skips frames that are already over.

use serde::{Deserialize, Serialize};
use ticktax_model::Nanos;

/// When a frame was due, which is in the first slot without one, and when it began.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) due: Nanos,
    pub(crate) began: Nanos,
}

/// When the frames of a loop are due.
pub(crate) struct Grid {
    period: Nanos,
    /// The first slot without a frame.
    due: Nanos,
    /// The slot of the next frame.
    next: Nanos,
}

impl Grid {
    /// A grid whose first slot is a period from `now`.
    pub(crate) fn new(now: Nanos, period: Nanos) -> Self {
        Self {
            period,
            due: now + period,
            next: now + period,
        }
    }

    /// Time until the next frame.
    pub(crate) fn left(&self, now: Nanos) -> std::time::Duration {
        let left = (self.next - now).max(Nanos::ZERO);
        std::time::Duration::from_nanos(left.0.unsigned_abs())
    }

    /// A frame that begins.
    pub(crate) fn frame(&self, began: Nanos) -> Reading {
        let due = self.due;
        Reading { due, began }
    }

    /// Ends the frame that began then.
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
