//! Clocks for measurements: `CLOCK_MONOTONIC`, and the CPU's counter if it can be trusted.
//!
//! Reading the counter takes a few nanoseconds and no system call. But its frequency has to be
//! measured, and on some machines the counter stops, drifts or differs between CPUs. That is why
//! the counter is [checked](CounterCheck) before use. If it fails the check, `CLOCK_MONOTONIC` is
//! read instead, and the check says why.

mod alignment;
mod anchor;
mod check;
mod counter;

use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use ticktax_model::Nanos;

pub use alignment::Alignment;
pub use anchor::Anchor;
pub use check::CounterCheck;
pub(crate) use counter::{Counter, FastHardware, Hardware, Monotonic};
pub use ticktax_model::clock::{CounterSource, CounterVerdict, Distrust};

/// Nanoseconds per second. This is also the frequency of `CLOCK_MONOTONIC` as a counter.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the time on `CLOCK_MONOTONIC`, the clock of all timestamps in ticktax.
#[inline]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// Returns the CPU time that the calling thread has used.
#[inline]
pub fn thread_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let time = time.expect("every Linux has a clock for each thread");
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// The counter used for a measurement, its frequency, and the result of checking the CPU's counter.
#[derive(Debug, Clone)]
pub struct Clock {
    source: CounterSource,
    frequency_hz: u64,
    check: CounterCheck,
}

impl Clock {
    /// Checks this machine's counter and measures its frequency, which takes about 50 ms.
    ///
    /// A counter that cannot be trusted is not an error. The clock then reads `CLOCK_MONOTONIC`,
    /// and [`Clock::check`] returns the reason.
    pub fn calibrate() -> Self {
        Self::calibrate_under(Path::new("/"))
    }

    /// Same as [`Clock::calibrate`], but reads the kernel's `proc` and `sys` file systems in the
    /// directory `root`.
    pub fn calibrate_under(root: &Path) -> Self {
        let check = check::examine(root);
        let (source, frequency_hz) = match check.verdict {
            CounterVerdict::Trusted => (check.source, check.frequency_hz),
            CounterVerdict::Untrusted(_) => (CounterSource::Monotonic, NANOS_PER_SECOND),
        };
        Self {
            source,
            frequency_hz,
            check,
        }
    }

    /// Returns the result of checking the hardware counter.
    pub fn check(&self) -> &CounterCheck {
        &self.check
    }

    /// Returns the counter in use: the CPU's counter if it is trusted, otherwise `CLOCK_MONOTONIC`.
    pub fn source(&self) -> CounterSource {
        self.source
    }

    /// Returns the frequency of the counter in use, in Hz. It is always above 0.
    pub fn frequency_hz(&self) -> u64 {
        self.frequency_hz
    }

    /// Reads the counter, in ticks.
    pub fn read(&self) -> u64 {
        match self.source {
            CounterSource::Monotonic => Monotonic.read(),
            CounterSource::Tsc | CounterSource::Cntvct => Hardware.read(),
        }
    }

    /// Reads the counter and `CLOCK_MONOTONIC` as close together as possible. Makes 32 attempts and
    /// returns the most precise one.
    ///
    /// This takes a few microseconds. Push an anchor into the [`Alignment`] from time to time, and
    /// at least once after the last counter reading that you want to convert.
    pub fn anchor(&self) -> Anchor {
        match self.source {
            CounterSource::Monotonic => Anchor::exact(now()),
            CounterSource::Tsc | CounterSource::Cntvct => {
                anchor::tightest(&mut Hardware, now).to_anchor(self.frequency_hz)
            }
        }
    }

    /// Creates an alignment whose first anchor is read now.
    pub fn alignment(&self) -> Alignment {
        Alignment::new(self.anchor(), self.frequency_hz)
    }

    /// Converts ticks to a duration, rounded to the nearest nanosecond.
    pub fn to_nanos(&self, ticks: u64) -> Nanos {
        ticks_to_nanos(ticks, self.frequency_hz)
    }

    /// Converts a duration to ticks, rounded up. Negative durations become 0.
    pub fn to_ticks(&self, time: Nanos) -> u64 {
        let nanos = u128::from(u64::try_from(time.0).unwrap_or(0));
        let ticks = (nanos * u128::from(self.frequency_hz)).div_ceil(u128::from(NANOS_PER_SECOND));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Converts ticks of a counter that runs at `frequency_hz` to a duration, rounded to the nearest
/// nanosecond.
fn ticks_to_nanos(ticks: u64, frequency_hz: u64) -> Nanos {
    let frequency = u128::from(frequency_hz.max(1));
    let nanos = (u128::from(ticks) * u128::from(NANOS_PER_SECOND) + frequency / 2) / frequency;
    Nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Clock, CounterSource, CounterVerdict, now, ticks_to_nanos};

    #[test]
    fn ticks_and_nanoseconds_round_trip() {
        let clock = Clock::calibrate();
        for nanos in [0, 1, 30, 100, 1_000_000_007, 86_400_000_000_000] {
            let round_trip = clock.to_nanos(clock.to_ticks(Nanos(nanos)));
            // `to_ticks` rounds up to whole ticks, which can be longer than a nanosecond, so the
            // result can be up to one tick longer.
            let tick = ticks_to_nanos(1, clock.frequency_hz()).0;
            assert!(
                (nanos..=nanos + tick + 1).contains(&round_trip.0),
                "{nanos}"
            );
        }
        assert_eq!(clock.to_ticks(Nanos(-5)), 0);
        assert_eq!(ticks_to_nanos(u64::MAX, 1), Nanos::MAX);
    }

    #[test]
    fn a_live_reading_aligns_between_its_enclosing_times() {
        let clock = Clock::calibrate();
        let mut alignment = clock.alignment();
        let before = now();
        let counter = clock.read();
        let after = now();
        assert!(alignment.push(clock.anchor()));
        let margin = alignment.uncertainty();
        let time = alignment.to_monotonic(counter);
        assert!(
            before - margin <= time && time <= after + margin,
            "{before} {time} {after}"
        );
    }

    #[test]
    fn a_counter_that_the_kernel_does_not_describe_is_untrusted() {
        let nowhere = tempfile::tempdir().unwrap();
        let clock = Clock::calibrate_under(nowhere.path());
        if cfg!(target_arch = "x86_64") {
            assert!(matches!(
                clock.check().verdict,
                CounterVerdict::Untrusted(_)
            ));
            assert_eq!(clock.source(), CounterSource::Monotonic);
            assert_eq!(clock.to_nanos(clock.to_ticks(Nanos(17))), Nanos(17));
        }
    }
}
