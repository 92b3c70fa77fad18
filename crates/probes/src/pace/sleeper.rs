//! Sleep methods, each named after its system call.
//!
//! Times are rounded up to the call's unit, so that no sleep ends early. If a signal cuts a sleep
//! short, the loop sleeps again.

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollTimeout};
use nix::sys::select::select;
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use nix::sys::timerfd::{Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use ticktax_model::Nanos;
use ticktax_model::pace::{Calibration, SleepMethod};

use crate::clock::now;
use crate::sys;

/// A sleep method, with the file descriptors that it needs.
#[derive(Debug)]
pub(super) enum Sleeper {
    Nanosleep,
    Usleep,
    ClockNanosleepAbs,
    Timerfd(TimerFd),
    Select,
    Poll,
    Epoll(Epoll),
    Spin,
    /// Sleeps until this long before the due time, then spins.
    Hybrid(Nanos),
}

impl Sleeper {
    /// Opens the file descriptors that the method needs.
    pub(super) fn new(method: SleepMethod) -> Result<Self, Errno> {
        Ok(match method {
            SleepMethod::Nanosleep => Self::Nanosleep,
            SleepMethod::Usleep => Self::Usleep,
            SleepMethod::ClockNanosleepAbs => Self::ClockNanosleepAbs,
            SleepMethod::Timerfd => Self::Timerfd(TimerFd::new(
                nix::sys::timerfd::ClockId::CLOCK_MONOTONIC,
                TimerFlags::TFD_CLOEXEC,
            )?),
            SleepMethod::Select => Self::Select,
            SleepMethod::Poll => Self::Poll,
            SleepMethod::Epoll => Self::Epoll(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?),
            SleepMethod::Spin => Self::Spin,
            SleepMethod::Hybrid => Self::Hybrid(Nanos::ZERO),
        })
    }

    /// Calibrates the hybrid method, which takes about 40 ms. Measures how late this thread's
    /// sleeps end, sets the length of the spin accordingly, and returns it. For other methods, does
    /// nothing and returns `None`.
    pub(super) fn calibrate(&mut self, period: Nanos) -> Option<Nanos> {
        let Self::Hybrid(margin) = self else {
            return None;
        };
        let mut late = [Nanos::ZERO; Calibration::TRIALS];
        for lateness in &mut late {
            let due = now() + Calibration::TRIAL;
            // A sleep that a signal ends early counts as on time.
            let _ = sleep_until(due);
            *lateness = now() - due;
        }
        *margin = Calibration::margin(late, period);
        Some(*margin)
    }

    /// Waits until `due`, which must be later than `now`. A signal can end the wait early.
    #[inline]
    pub(super) fn wait(&self, now: Nanos, due: Nanos) -> Result<(), Errno> {
        let left = due - now;
        let slept = match self {
            Self::Nanosleep => sys::nanosleep(left),
            Self::Usleep => sys::usleep(in_units(left, SleepMethod::Usleep.unit())),
            Self::ClockNanosleepAbs => sleep_until(due),
            Self::Timerfd(timer) => timer
                .set(
                    Expiration::OneShot(to_timespec(due)),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )
                .and_then(|()| timer.wait()),
            Self::Select => {
                let mut left =
                    TimeVal::microseconds(in_units(left, SleepMethod::Select.unit()).into());
                select(None, None, None, None, &mut left).map(drop)
            }
            Self::Poll => poll(&mut [], millis::<PollTimeout>(SleepMethod::Poll, left)).map(drop),
            Self::Epoll(epoll) => {
                let mut nothing = [nix::sys::epoll::EpollEvent::empty()];
                epoll
                    .wait(
                        &mut nothing,
                        millis::<EpollTimeout>(SleepMethod::Epoll, left),
                    )
                    .map(drop)
            }
            Self::Hybrid(margin) if left > *margin => sleep_until(due - *margin),
            Self::Spin | Self::Hybrid(_) => {
                spin_until(due);
                Ok(())
            }
        };
        match slept {
            Err(Errno::EINTR) => Ok(()),
            other => other,
        }
    }
}

fn spin_until(due: Nanos) {
    while now() < due {
        std::hint::spin_loop();
    }
}

fn sleep_until(due: Nanos) -> Result<(), Errno> {
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &to_timespec(due)).map(drop)
}

fn to_timespec(time: Nanos) -> TimeSpec {
    TimeSpec::new(
        time.0.div_euclid(1_000_000_000),
        time.0.rem_euclid(1_000_000_000),
    )
}

/// Converts a time to units. Rounds up, so that no sleep ends early.
fn in_units(time: Nanos, unit: Nanos) -> u32 {
    let time = time.0.max(0);
    let units = time / unit.0 + i64::from(time % unit.0 > 0);
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Converts a time to milliseconds for `poll` and `epoll_wait`. Even the longest period fits in a
/// `u16`.
fn millis<T: From<u16>>(method: SleepMethod, time: Nanos) -> T {
    T::from(u16::try_from(in_units(time, method.unit())).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{Calibration, SleepMethod};

    use super::{Sleeper, in_units};
    use crate::clock::now;

    #[test]
    fn no_sleep_method_returns_early() {
        for method in SleepMethod::ALL {
            let sleeper = Sleeper::new(method).unwrap();
            let begin = now();
            let due = begin + Nanos::from_micros(1_700);
            // One call is enough unless a signal arrives. This also holds for the hybrid method,
            // which is not calibrated here and therefore has no margin.
            sleeper.wait(begin, due).unwrap();
            assert!(now() >= due, "{method}");
        }
    }

    #[test]
    fn the_hybrid_margin_is_within_its_bounds() {
        let mut hybrid = Sleeper::new(SleepMethod::Hybrid).unwrap();
        let period = Nanos::from_millis(10);
        let margin = hybrid.calibrate(period).unwrap();
        assert!((Calibration::MIN..=Nanos::from_millis(5)).contains(&margin));
        let mut nanosleep = Sleeper::new(SleepMethod::Nanosleep).unwrap();
        assert_eq!(nanosleep.calibrate(period), None);
    }

    #[test]
    fn units_are_rounded_up() {
        for (ns, units) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (-5, 0)] {
            assert_eq!(in_units(Nanos(ns), Nanos(1_000)), units, "{ns}");
        }
    }
}
