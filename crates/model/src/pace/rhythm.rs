//! The frame period of a running program, which is used to wait for the program's next frame.

use crate::Nanos;

/// Relative difference above which the periods of two grids count as different. Repeated
/// measurements of the same loop differ by a few ppm. The tolerance is small because slots are
/// extrapolated from the period, so an error in it adds up.
const TOLERANCE: f64 = 0.001;

/// Relative difference above which the periods of two loops count as different if their delays
/// accumulate. This tolerance is larger than the one for grids, because the period is derived from
/// the shortest intervals between frames, which vary. An error in the period does not add up,
/// because the next due time depends only on the current frame.
const TOLERANCE_REARMED: f64 = 0.01;

/// Why no frame period was found in a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRhythm {
    /// The program did not run while it was observed.
    #[error("it did not run")]
    NotRun,
    /// The program's only thread has no frame period, for this reason
    /// ([`ThreadReport::no_frames_reason`](super::ThreadReport::no_frames_reason)).
    #[error("{0}")]
    OnlyThread(String),
    /// Some threads wake up periodically but do too little work to be the program's main loop.
    #[error("only threads that used little of its CPU time wake up periodically")]
    LittleWork,
    /// The program has several threads, but none of them wakes up periodically.
    #[error("none of its {threads} threads wakes up periodically")]
    NotPeriodic {
        /// Number of threads that ran while the program was observed.
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
    /// Whether each frame is due one period after the previous frame started, so that delays
    /// accumulate. If not, the frames are due on a fixed grid.
    pub rearmed: bool,
    /// Minimum CPU time that the thread uses after a wake-up for that wake-up to count as the start
    /// of a frame. Set for a thread that polls the clock in short sleeps, most of whose wake-ups do
    /// not start a frame. `None` if every wake-up starts a frame.
    pub long_from: Option<Nanos>,
}

impl FrameRhythm {
    /// Frames per second.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.period.0.max(1) as f64
    }

    /// Returns whether `self` and `other` expect frames at the same times. They do if they have the
    /// same thread, the same kind of frames and nearly the same period. Periods may differ by 0.1
    /// %, or by 1 % if delays accumulate.
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
        // On a grid, a difference of 0.5 % adds up to an entire slot in 200 frames.
        assert!(!first.is_as(&rhythm(7, 20_100_000)));
        assert!(rearmed(20_000_000).is_as(&rearmed(20_100_000)));
    }
}
