//! The frame period of a running program, used to wait for its next frame.

use crate::Nanos;

/// Relative difference above which two grid periods are considered different. Measurements of the
/// same loop differ by a few ppm. Slots are extrapolated, so errors add up.
const TOLERANCE: f64 = 0.001;

/// The same tolerance for loops whose delays accumulate. Their period is derived from the shortest
/// intervals, which vary, and the next due time depends only on the current frame.
const TOLERANCE_REARMED: f64 = 0.01;

/// Why no rhythm was found in a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRhythm {
    /// The program did not run.
    #[error("it did not run")]
    NotRun,
    /// The program has a single thread, which has no rhythm for this reason
    /// ([`ThreadReport::no_frames_reason`](super::ThreadReport::no_frames_reason)).
    #[error("{0}")]
    OnlyThread(String),
    /// The threads that wake up periodically do too little work to be the program's loop.
    #[error("only threads that used little of its CPU time wake up periodically")]
    LittleWork,
    /// None of several threads wakes up periodically.
    #[error("none of its {threads} threads wakes up periodically")]
    NotPeriodic {
        /// Number of threads that ran.
        threads: usize,
    },
}

/// A program's frames: the thread that runs them, the wake-ups that start them, and their due
/// times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRhythm {
    /// Thread id.
    pub tid: i32,
    /// Thread name.
    pub name: String,
    /// Frame period.
    pub period: Nanos,
    /// Due time of the last observed frame, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
    /// Whether a frame is due one period after the previous frame started, so that delays
    /// accumulate. Otherwise frames are due on a grid.
    pub rearmed: bool,
    /// Minimum CPU time after a wake-up that starts a frame, for a thread that polls the clock in
    /// short sleeps. `None` if every wake-up starts a frame.
    pub long_from: Option<Nanos>,
}

impl FrameRhythm {
    /// Frames per second.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.period.0.max(1) as f64
    }

    /// Whether `self` and `other` expect frames at the same times. If so, they have the same
    /// thread, the same kind of frames, and periods within 0.1 %, or 1 % if delays accumulate.
    pub fn is_as(&self, other: &Self) -> bool {
        let tolerance = if self.rearmed {
            TOLERANCE_REARMED
        } else {
            TOLERANCE
        };
        let difference = (self.period - other.period).0.unsigned_abs() as f64;
        self.tid == other.tid
            && self.rearmed == other.rearmed
            && self.long_from.is_some() == other.long_from.is_some()
            && difference <= self.period.0 as f64 * tolerance
    }
}

#[cfg(test)]
mod tests {
    use super::FrameRhythm;
    use crate::Nanos;

    #[test]
    fn rhythms_match_while_their_frames_are_due_at_the_same_times() {
        let rhythm = |tid, period| FrameRhythm {
            tid,
            name: "game".to_owned(),
            period: Nanos(period),
            due: Nanos(period),
            rearmed: false,
            long_from: None,
        };
        let first = rhythm(7, 20_000_000);
        assert!((first.rate_hz() - 50.0).abs() < 1e-9);
        assert!(first.is_as(&rhythm(7, 20_000_300)));
        assert!(!first.is_as(&rhythm(7, 16_666_667)));
        assert!(!first.is_as(&rhythm(8, 20_000_000)));
        let polling = FrameRhythm {
            long_from: Some(Nanos(1_000)),
            ..first.clone()
        };
        assert!(!first.is_as(&polling));
        let rearmed = |period| FrameRhythm {
            rearmed: true,
            ..rhythm(7, period)
        };
        assert!(!first.is_as(&rearmed(20_000_000)));
        // On a grid, a difference of 0.5 % adds up to an entire slot after 200 frames.
        assert!(!first.is_as(&rhythm(7, 20_100_000)));
        assert!(rearmed(20_000_000).is_as(&rearmed(20_100_000)));
    }
}
