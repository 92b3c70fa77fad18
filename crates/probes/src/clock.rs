//! The clocks of a measurement: `CLOCK_MONOTONIC`, and the CPU's counter once it has proven itself.
//!
//! A reading of the counter costs a few nanoseconds and no system call, but it counts ticks of an
//! unknown length, and on some machines it stops, drifts or differs between CPUs. So it is
//! [checked](CounterCheck) before it is used; where it fails, `CLOCK_MONOTONIC` is read in its
//! place and the check says why.

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

/// Nanoseconds, and so ticks of `CLOCK_MONOTONIC`, in a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The time on `CLOCK_MONOTONIC`, the clock of every time in the program.
#[inline]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// CPU time of the calling thread so far.
#[inline]
pub(crate) fn thread_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let time = time.expect("every Linux has a clock for each thread");
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// The counter that a measurement reads, with its frequency and the evidence for both.
#[derive(Debug, Clone)]
pub struct Clock {
    source: CounterSource,
    frequency_hz: u64,
    check: CounterCheck,
}

impl Clock {
    /// Checks this machine's counter and measures its frequency. Takes about 50 ms.
    ///
    /// A counter that fails is no error: the clock then reads `CLOCK_MONOTONIC`, and
    /// [`Clock::check`] says why.
    pub fn calibrate() -> Self {
        Self::calibrate_under(Path::new("/"))
    }

    /// [`Clock::calibrate`], with the kernel's `proc` and `sys` under another root directory.
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

    /// What the examination of the hardware's counter found.
    pub fn check(&self) -> &CounterCheck {
        &self.check
    }

    /// The counter in use: the hardware's if it is trusted, else `CLOCK_MONOTONIC`.
    pub fn source(&self) -> CounterSource {
        self.source
    }

    /// Ticks in a second of the counter in use. Always above 0.
    pub fn frequency_hz(&self) -> u64 {
        self.frequency_hz
    }

    /// Reads the counter in use, in ticks.
    pub fn read(&self) -> u64 {
        match self.source {
            CounterSource::Monotonic => Monotonic.read(),
            CounterSource::Tsc | CounterSource::Cntvct => Hardware.read(),
        }
    }

    /// Reads the counter and `CLOCK_MONOTONIC` as near to each other as 32 tries allow.
    ///
    /// Takes some microseconds. A caller pushes one into its [`Alignment`] now and then, at least
    /// once after the last reading that it wants to convert.
    pub fn anchor(&self) -> Anchor {
        match self.source {
            CounterSource::Monotonic => Anchor::exact(now()),
            CounterSource::Tsc | CounterSource::Cntvct => {
                anchor::tightest(&mut Hardware, now).to_anchor(self.frequency_hz)
            }
        }
    }

    /// An alignment that begins now.
    pub fn alignment(&self) -> Alignment {
        Alignment::new(self.anchor(), self.frequency_hz)
    }

    /// How long a number of ticks takes, rounded to the nearest nanosecond.
    pub fn to_nanos(&self, ticks: u64) -> Nanos {
        ticks_to_nanos(ticks, self.frequency_hz)
    }

    /// How many ticks pass in a time, rounded up; 0 for a time below 0.
    pub fn to_ticks(&self, time: Nanos) -> u64 {
        let nanos = u128::from(u64::try_from(time.0).unwrap_or(0));
        let ticks = (nanos * u128::from(self.frequency_hz)).div_ceil(u128::from(NANOS_PER_SECOND));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// How long `ticks` of a counter of `frequency_hz` take, to the nearest nanosecond.
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
    fn ticks_and_time_convert_both_ways() {
        let clock = Clock::calibrate();
        for nanos in [0, 1, 30, 100, 1_000_000_007, 86_400_000_000_000] {
            let there_and_back = clock.to_nanos(clock.to_ticks(Nanos(nanos)));
            // A tick may be longer than a nanosecond, and the conversion rounds up to whole ticks.
            let tick = ticks_to_nanos(1, clock.frequency_hz()).0;
            assert!(
                (nanos..=nanos + tick + 1).contains(&there_and_back.0),
                "{nanos}"
            );
        }
        assert_eq!(clock.to_ticks(Nanos(-5)), 0);
        assert_eq!(ticks_to_nanos(u64::MAX, 1), Nanos::MAX);
    }

    #[test]
    fn the_alignment_of_a_live_clock_holds_a_reading_between_two_times() {
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
    fn without_the_kernels_word_the_counter_is_not_used() {
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
