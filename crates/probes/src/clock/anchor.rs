//! Anchors: readings of the counter and of `CLOCK_MONOTONIC` at the same moment.

use ticktax_model::Nanos;

use super::{Counter, ticks_to_nanos};

/// Number of attempts per anchor. The most precise one is used.
const TRIES: u32 = 32;

/// A counter reading, with the time on `CLOCK_MONOTONIC` at which it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Counter reading, in ticks.
    pub counter: u64,
    /// When the counter was read, accurate to half of `bracket`.
    pub monotonic: Nanos,
    /// Time between the counter readings just before and just after the clock was read.
    pub bracket: Nanos,
}

impl Anchor {
    /// Creates an anchor for a measurement that uses `CLOCK_MONOTONIC` itself as its counter.
    pub(super) fn exact(monotonic: Nanos) -> Self {
        Self {
            counter: monotonic.0.unsigned_abs(),
            monotonic,
            bracket: Nanos::ZERO,
        }
    }
}

/// A reading of the clock, with a reading of the counter just before and just after it. The widths
/// of brackets can be compared even if the counter's frequency is unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracket {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) monotonic: Nanos,
}

impl Bracket {
    pub(super) fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Estimates the counter's value at the moment when the clock was read: the middle of the
    /// bracket.
    pub(super) fn counter(&self) -> u64 {
        self.before + self.width() / 2
    }

    pub(super) fn to_anchor(self, frequency_hz: u64) -> Anchor {
        let bracket = ticks_to_nanos(self.width(), frequency_hz);
        Anchor {
            counter: self.counter(),
            monotonic: self.monotonic,
            bracket,
        }
    }
}

/// Reads [`TRIES`] brackets and returns the narrowest.
///
/// An interruption widens only the bracket that it falls into, so the narrowest is the least
/// disturbed. Brackets in which the counter went backwards are skipped, unless it did so in all of
/// them.
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

    /// A 2 GHz counter that takes 10 ticks to read. Some readings take 1000 ticks more.
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
