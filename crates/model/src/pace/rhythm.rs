//! A rhythm, as somebody who waits for the next frame needs it.

use crate::Nanos;

/// By what part two periods of a grid differ that are told apart: the same loop's are found some ppm apart, and slots
/// are counted on, so that an error adds up.
const APART: f64 = 0.001;

/// The same where delays add up. The shortest intervals, which the period is then, vary, and each frame is the next
/// one's only measure.
const APART_REARMED: f64 = 0.01;

/// Which thread of a program has its frames, which of its wake-ups they are, and when they are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRhythm {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// From when a frame is due to when the next one is.
    pub period: Nanos,
    /// When the last one that was seen was due, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
    /// Whether a frame is due a period after the last began, so that delays add up; else frames are due on a grid.
    pub rearmed: bool,
    /// Only wake-ups after which the thread used so much CPU time until it slept again are frames: it polls the clock in
    /// naps. `None` where each is one.
    pub long_from: Option<Nanos>,
}

impl FrameRhythm {
    /// Frames a second.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.period.0.max(1) as f64
    }

    /// Whether frames by the other are due when those by this one are: the same thread, the same sort of frames, and the
    /// period but for 0.1 %, or 1 % where delays add up.
    pub fn is_as(&self, other: &Self) -> bool {
        let apart = if self.rearmed { APART_REARMED } else { APART };
        let differs = (self.period - other.period).0.unsigned_abs() as f64;
        self.tid == other.tid
            && self.rearmed == other.rearmed
            && self.long_from.is_some() == other.long_from.is_some()
            && differs <= self.period.0 as f64 * apart
    }
}

#[cfg(test)]
mod tests {
    use super::FrameRhythm;
    use crate::Nanos;

    #[test]
    fn a_rhythm_is_the_same_until_its_frames_are_due_at_other_times() {
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
        // On a grid, half a percent is a slot after 200 frames.
        assert!(!first.is_as(&rhythm(7, 20_100_000)));
        assert!(rearmed(20_000_000).is_as(&rearmed(20_100_000)));
    }
}
