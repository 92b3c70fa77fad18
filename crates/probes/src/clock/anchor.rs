//! A point at which both the counter's reading and the time are known.

use ticktax_model::Nanos;

use super::{Counter, ticks_to_nanos};

/// Number of readings of both clocks per anchor; the closest pair is kept.
const TRIES: u32 = 32;

/// A reading of the counter, with the time on `CLOCK_MONOTONIC` when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The counter's reading, in ticks.
    pub counter: u64,
    /// The matching time, accurate to half the bracket.
    pub monotonic: Nanos,
    /// Time between the two readings of the counter that enclose the reading of the clock.
    pub bracket: Nanos,
}

impl Anchor {
    /// The anchor if `CLOCK_MONOTONIC` itself is the counter.
    pub(super) fn exact(monotonic: Nanos) -> Self {
        Self {
            counter: monotonic.0.unsigned_abs(),
            monotonic,
            bracket: Nanos::ZERO,
        }
    }
}

/// A reading of the clock between two readings of a counter of possibly unknown frequency.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracket {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) monotonic: Nanos,
}

impl Bracket {
    /// Ticks between the two readings of the counter.
    pub(super) fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Estimated counter reading at the time of the clock's reading: the bracket's middle.
    pub(super) fn counter(&self) -> u64 {
        self.before + self.width() / 2
    }

    /// Converts the bracket to an anchor, given the counter's frequency.
    pub(super) fn to_anchor(self, frequency_hz: u64) -> Anchor {
        let bracket = ticks_to_nanos(self.width(), frequency_hz);
        Anchor {
            counter: self.counter(),
            monotonic: self.monotonic,
            bracket,
        }
    }
}

/// Returns the narrowest of [`TRIES`] brackets.
///
/// An interruption only widens the bracket that it hits, so the narrowest is the least disturbed
/// one. Brackets in which the counter stepped back are skipped. If all did, the last is returned.
pub(super) fn tightest(counter: &mut impl Counter, clock: impl Fn() -> Nanos) -> Bracket {
    let mut read_bracket = || {
        let before = counter.read();
        let monotonic = clock();
        Bracket {
            before,
            after: counter.read(),
            monotonic,
        }
    };
    let mut best = read_bracket();
    for _ in 1..TRIES {
        let next = read_bracket();
        let is_forward = next.after >= next.before;
        if best.after < best.before || (is_forward && next.width() < best.width()) {
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

    /// A 2 GHz counter whose readings take 10 ticks, some of them 1000 more.
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
    fn the_undisturbed_bracket_is_chosen() {
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
