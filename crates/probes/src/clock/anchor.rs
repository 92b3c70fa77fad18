//! One point at which the counter's reading and the time are both known.

use ticktax_model::Nanos;

use super::{Counter, ticks_to_nanos};

/// How often the two clocks are read for one anchor; the nearest pair is kept.
const TRIES: u32 = 32;

/// A reading of the counter, and the time on `CLOCK_MONOTONIC` when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The counter's reading, in ticks.
    pub counter: u64,
    /// The time that belongs to it, to within half the bracket.
    pub monotonic: Nanos,
    /// The time between the two readings of the counter that enclose the reading of the clock.
    pub bracket: Nanos,
}

impl Anchor {
    /// The anchor of a counter that is `CLOCK_MONOTONIC` itself.
    pub(super) fn exact(monotonic: Nanos) -> Self {
        Self {
            counter: monotonic.0.unsigned_abs(),
            monotonic,
            bracket: Nanos::ZERO,
        }
    }
}

/// A reading of the clock between two readings of the counter, whose frequency may be unknown yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracket {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) monotonic: Nanos,
}

impl Bracket {
    /// The ticks between the two readings of the counter.
    pub(super) fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// The counter's reading at the clock's, as far as the bracket tells: its middle.
    pub(super) fn counter(&self) -> u64 {
        self.before + self.width() / 2
    }

    /// The anchor that this bracket gives, for a counter of known frequency.
    pub(super) fn to_anchor(self, frequency_hz: u64) -> Anchor {
        let bracket = ticks_to_nanos(self.width(), frequency_hz);
        Anchor {
            counter: self.counter(),
            monotonic: self.monotonic,
            bracket,
        }
    }
}

/// The narrowest of [`TRIES`] brackets.
///
/// An interruption widens the bracket that it hits, never narrows one, so the narrowest is the one
/// that was left alone. A bracket in which the counter stepped back proves nothing and is skipped;
/// if all did, the last is given.
pub(super) fn tightest(counter: &mut impl Counter, clock: impl Fn() -> Nanos) -> Bracket {
    let mut take = || {
        let before = counter.read();
        let monotonic = clock();
        Bracket {
            before,
            after: counter.read(),
            monotonic,
        }
    };
    let mut best = take();
    for _ in 1..TRIES {
        let next = take();
        let sound = next.after >= next.before;
        if best.after < best.before || (sound && next.width() < best.width()) {
            best = next;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ticktax_model::{Cpu, Nanos};

    use super::{Counter, tightest};

    /// A counter of 2 GHz whose readings take 10 ticks, and 1000 more at some of them.
    struct Disturbed<'a> {
        time: &'a Cell<u64>,
        reading: u32,
    }

    impl Counter for Disturbed<'_> {
        fn read(&mut self) -> u64 {
            self.reading += 1;
            let delay = if self.reading.is_multiple_of(2) && self.reading != 40 {
                1000
            } else {
                0
            };
            self.time.set(self.time.get() + 10 + delay);
            self.time.get()
        }

        fn cpu(&mut self) -> Option<Cpu> {
            None
        }
    }

    #[test]
    fn the_undisturbed_bracket_is_found() {
        let time = Cell::new(0);
        let clock = || {
            time.set(time.get() + 20);
            Nanos(i64::try_from(time.get() / 2).unwrap())
        };
        let bracket = tightest(
            &mut Disturbed {
                time: &time,
                reading: 0,
            },
            clock,
        );
        assert_eq!(bracket.width(), 30);
        let anchor = bracket.to_anchor(2_000_000_000);
        assert_eq!(anchor.bracket, Nanos(15));
        let error = i64::try_from(anchor.counter / 2).unwrap() - anchor.monotonic.0;
        assert!(error.abs() <= anchor.bracket.0 / 2 + 1, "{error}");
    }
}
