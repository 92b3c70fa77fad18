//! Joins a thread's consecutive waits for other threads.

use ticktax_model::{Nanos, Span};

use super::Step;
use crate::victim::wakers::Waking;

/// Consecutive waits for other threads, with hardly any running in between. A thread that waits for
/// a lock with a time-out tries again and again.
///
/// A chain has a maximum length, because a worker with very short jobs never runs for long. The
/// next wait after that starts another chain, so a longer wait for a lock counts as several stalls.
/// A single wait can be longer than a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) span: Span,
    pub(super) woken: Option<Waking>,
    pub(super) waited: Nanos,
    /// Time that the thread has run since the last of these waits.
    ran: Nanos,
}

impl Chain {
    /// Longest time that the thread may run between two waits.
    const PAUSE: Nanos = Nanos::from_micros(100);
    /// Maximum length of several waits. Busy times are known for longer than that.
    pub(super) const LONGEST: Nanos = Nanos::from_secs(5);

    pub(super) fn new(step: &Step) -> Self {
        Self {
            span: step.span,
            woken: step.woken,
            waited: step.span.dur,
            ran: Nanos::ZERO,
        }
    }

    /// Adds the next wait. Returns whether the chain had room for it.
    pub(super) fn add(&mut self, step: &Step) -> bool {
        let length = step.span.end() - self.span.start;
        if length > Self::LONGEST {
            return false;
        }
        self.span.dur = length;
        self.waited += step.span.dur;
        self.woken = step.woken;
        self.ran = Nanos::ZERO;
        true
    }

    /// Notes that the thread ran. Returns whether this ends the chain.
    pub(super) fn ran(&mut self, time: Nanos) -> bool {
        self.ran += time;
        self.ran > Self::PAUSE
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::victim::BlockedOn;
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::{Chain, Step};
    use crate::victim::stalls::Doing;

    fn wait(start_ms: i64, ms: i64) -> Step {
        let dur = Nanos::from_millis(ms);
        let span = Span {
            cpu: Cpu(0),
            start: Nanos::from_millis(start_ms),
            dur,
            self_time: dur,
            source: SourceId(0),
        };
        Step {
            span,
            doing: Doing::Blocked(BlockedOn::Thread),
            woken: None,
        }
    }

    #[test]
    fn waits_are_joined_up_to_a_length() {
        let mut chain = Chain::new(&wait(0, 3_000));
        assert!(!chain.ran(Nanos::from_micros(60)));
        assert!(chain.add(&wait(3_001, 1_000)));
        // The time that the thread runs counts from the last wait.
        assert!(!chain.ran(Nanos::from_micros(60)));
        assert!(!chain.add(&wait(4_002, 1_000)), "longer than 5 s");
        assert_eq!(chain.span.dur, Nanos::from_millis(4_001));
        assert_eq!(chain.waited, Nanos::from_millis(4_000));
        assert!(
            chain.ran(Nanos::from_micros(60)),
            "ran for longer than 100 µs"
        );
        // A single wait may be longer.
        let long = Chain::new(&wait(0, 60_000));
        assert_eq!(long.waited, Nanos::from_secs(60));
    }
}
