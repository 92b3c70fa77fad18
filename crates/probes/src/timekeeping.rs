//! Watches the system clock and the hardware clocks, without changing them.
//!
//! Three facts of the kernel are used:
//!
//! - The difference between `CLOCK_REALTIME` and `CLOCK_BOOTTIME` changes only if the system clock
//!   is stepped. Both run at the same rate, and go on while the machine is suspended.
//! - Nothing adjusts `CLOCK_MONOTONIC_RAW`, so its difference to `CLOCK_MONOTONIC` shows the
//!   corrections of the rate. Both stand still while the machine is suspended.
//! - A timer with `TFD_TIMER_CANCEL_ON_SET` wakes its owner when the system clock is stepped
//!   (`timerfd_create(2)`).

mod rtc;

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{
    ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags,
};
use nix::time::{ClockId, clock_gettime};
use ticktax_model::Nanos;
use ticktax_model::timekeeping::{
    ClockLimitation, ClockSample, ClockSource, ClockStep, Discipline, Leap, SourceSwitch,
    Timekeeping,
};

use crate::sys;
use rtc::Device;

/// Attempts to read two clocks at the same time. The shortest counts.
const ATTEMPTS: usize = 5;
/// Longest time until a request to stop is noticed.
const SLICE: Nanos = Nanos::from_millis(100);

/// Settings of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// Length of the watch. If it is zero, the clocks are read once.
    pub length: Nanos,
    /// Time between two samples, at least 10 ms.
    pub interval: Nanos,
}

/// Watches the clocks of the machine whose `sys` file system is in the directory `root`. Ends early
/// if `stop` returns true, which is called at least every 100 ms.
///
/// # Errors
/// Returns the kernel's error if the state of the system clock cannot be read.
pub fn watch(
    root: &Path,
    settings: WatchSettings,
    stop: &dyn Fn() -> bool,
) -> Result<Timekeeping, Errno> {
    let mut limitations = Vec::new();
    let mut watch = Watch::begin(root, &mut limitations)?;
    let mut rtcs = Device::all(root);
    let interval = settings.interval.max(Nanos::from_millis(10));
    let end = watch.start_raw + settings.length;
    let mut next = watch.start_raw;
    loop {
        watch.sample()?;
        for device in &mut rtcs {
            // A reading takes up to two seconds. The first one also serves a single look.
            if steady()? < end || watch.samples.len() == 1 {
                device.read(&mut watch, stop);
            }
        }
        let now = steady()?;
        next = (next + interval).max(now);
        watch.wait_until(next.min(end), stop);
        if next >= end || stop() {
            break;
        }
    }
    if settings.length > Nanos::ZERO {
        watch.sample()?;
    }
    limitations.extend(rtcs.iter().filter_map(Device::limitation));
    if !root.join("sys/class").is_dir() {
        limitations.push(ClockLimitation::DevicesUnknown);
    }
    Ok(Timekeeping {
        watched: watch.elapsed(),
        discipline: discipline()?,
        source: watch.source,
        samples: watch.samples,
        steps: watch.steps,
        switches: watch.switches,
        rtcs: rtcs.into_iter().map(Device::finish).collect(),
        limitations,
    })
}

/// Returns `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`. It changes only if the system clock is
/// stepped. Returns `None` if the clocks cannot be read.
pub fn step_offset() -> Option<Nanos> {
    let base = pair(ClockId::CLOCK_REALTIME, ClockId::CLOCK_BOOTTIME).ok()?;
    Some(base.difference)
}

struct Watch<'a> {
    root: &'a Path,
    start_raw: Nanos,
    /// `CLOCK_MONOTONIC` minus `CLOCK_MONOTONIC_RAW` at the start.
    start_ahead: Pair,
    /// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`.
    base: Pair,
    step_timer: Option<TimerFd>,
    source: ClockSource,
    samples: Vec<ClockSample>,
    steps: Vec<ClockStep>,
    switches: Vec<SourceSwitch>,
}

/// Difference between two clocks that were read at nearly the same time.
#[derive(Clone, Copy, Debug)]
struct Pair {
    difference: Nanos,
    uncertainty: Nanos,
}

impl<'a> Watch<'a> {
    fn begin(root: &'a Path, limitations: &mut Vec<ClockLimitation>) -> Result<Self, Errno> {
        let source = clock_source(root);
        if source.current.is_empty() {
            limitations.push(ClockLimitation::NoClockSource);
        }
        let step_timer = step_timer().ok();
        if step_timer.is_none() {
            limitations.push(ClockLimitation::NoStepEvents);
        }
        Ok(Self {
            root,
            start_raw: steady()?,
            start_ahead: pair(ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_MONOTONIC_RAW)?,
            base: pair(ClockId::CLOCK_REALTIME, ClockId::CLOCK_BOOTTIME)?,
            step_timer,
            source,
            samples: Vec::new(),
            steps: Vec::new(),
            switches: Vec::new(),
        })
    }

    /// Returns the time since the start, on the steady clock.
    fn elapsed(&self) -> Nanos {
        steady().map_or(Nanos::ZERO, |raw| raw - self.start_raw)
    }

    fn sample(&mut self) -> Result<(), Errno> {
        self.notice_step();
        let ahead = pair(ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_MONOTONIC_RAW)?;
        let state = discipline()?;
        self.samples.push(ClockSample {
            raw: self.elapsed(),
            ahead: ahead.difference - self.start_ahead.difference,
            uncertainty: ahead.uncertainty + self.start_ahead.uncertainty,
            offset: state.offset,
            frequency_ppm: state.frequency_ppm,
        });
        let source = clock_source(self.root);
        if source.current != self.source.current {
            self.switches.push(SourceSwitch {
                at: self.elapsed(),
                from: self.source.current.clone(),
                to: source.current.clone(),
            });
        }
        self.source = source;
        Ok(())
    }

    /// Records a step if the system clock has jumped by more than the error of the readings.
    fn notice_step(&mut self) {
        if let Some(timer) = &self.step_timer
            && is_readable(timer, Nanos::ZERO)
        {
            // The read fails because the clock was set; only the new timer matters.
            let _ = timer.wait();
            self.step_timer = step_timer().ok();
        }
        let Ok(base) = pair(ClockId::CLOCK_REALTIME, ClockId::CLOCK_BOOTTIME) else {
            return;
        };
        let size = base.difference - self.base.difference;
        let uncertainty = base.uncertainty + self.base.uncertainty;
        if size.0.abs() > uncertainty.0 {
            self.steps.push(ClockStep {
                at: self.elapsed(),
                size,
                uncertainty,
            });
            self.base = base;
        } else if base.uncertainty < self.base.uncertainty {
            self.base = base;
        }
    }

    /// Waits until the steady clock reaches `raw`, and records steps as they happen.
    fn wait_until(&mut self, raw: Nanos, stop: &dyn Fn() -> bool) {
        while let Ok(now) = steady()
            && now < raw
            && !stop()
        {
            let slice = (raw - now).min(SLICE);
            match &self.step_timer {
                Some(timer) => {
                    if is_readable(timer, slice) {
                        self.notice_step();
                    }
                }
                None => std::thread::sleep(Duration::from_nanos(slice.0.unsigned_abs())),
            }
        }
    }
}

/// Creates a timer that is readable as soon as the system clock is stepped.
fn step_timer() -> nix::Result<TimerFd> {
    /// A year that no clock reaches, so that the timer does not expire: 2200.
    const FAR: i64 = 7_258_118_400;
    let timer = TimerFd::new(
        TimerClock::CLOCK_REALTIME,
        TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
    )?;
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(Expiration::OneShot(TimeSpec::new(FAR, 0)), flags)?;
    Ok(timer)
}

fn is_readable(timer: &TimerFd, limit: Nanos) -> bool {
    // At least 1 ms, so that waiting for less than that does not become a loop without sleep.
    let millis = u16::try_from(limit.0.div_euclid(1_000_000)).unwrap_or(u16::MAX);
    let millis = if limit.is_zero() { 0 } else { millis.max(1) };
    let mut polled = [PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::from(millis)).is_ok_and(|ready| ready > 0)
}

fn read(clock: ClockId) -> Result<Nanos, Errno> {
    clock_gettime(clock).map(|time| Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()))
}

/// Reads a clock that nothing adjusts and that goes on while the machine is suspended:
/// `CLOCK_MONOTONIC_RAW` plus the time spent suspended.
fn steady() -> Result<Nanos, Errno> {
    let suspended = pair(ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_MONOTONIC)?.difference;
    // Without a suspend, the difference is the error of the readings.
    let suspended = if suspended < Nanos::from_millis(1) {
        Nanos::ZERO
    } else {
        suspended
    };
    read(ClockId::CLOCK_MONOTONIC_RAW).map(|raw| raw + suspended)
}

/// Returns `clock` minus `reference`.
fn pair(clock: ClockId, reference: ClockId) -> Result<Pair, Errno> {
    let once = || {
        let before = read(reference)?;
        let between = read(clock)?;
        let after = read(reference)?;
        let half = Nanos((after - before).0 / 2);
        Ok(Pair {
            difference: between - before - half,
            // The clocks have a resolution of 1 ns, and half of an odd time is rounded down.
            uncertainty: half + Nanos(1),
        })
    };
    let mut best: Pair = once()?;
    for _ in 1..ATTEMPTS {
        let next = once()?;
        if next.uncertainty < best.uncertainty {
            best = next;
        }
    }
    Ok(best)
}

/// Reads the state of the system clock.
fn discipline() -> Result<Discipline, Errno> {
    let (state, leap) = sys::adjtimex()?;
    Ok(discipline_of(&state, leap))
}

/// Units are those of `adjtimex(2)`: the offset is in ns with `STA_NANO` and in µs otherwise, a
/// frequency of 65,536 is 1 ppm, and errors are in µs.
fn discipline_of(state: &libc::timex, leap: libc::c_int) -> Discipline {
    let unit = if state.status & libc::STA_NANO == 0 {
        1_000
    } else {
        1
    };
    Discipline {
        is_synchronised: state.status & libc::STA_UNSYNC == 0,
        offset: Nanos(state.offset * unit),
        frequency_ppm: state.freq as f64 / 65_536.0,
        tick_us: state.tick,
        max_error: Nanos::from_micros(state.maxerror),
        estimated_error: Nanos::from_micros(state.esterror),
        tai_offset_s: state.tai,
        leap: match leap {
            libc::TIME_INS => Leap::Insert,
            libc::TIME_DEL => Leap::Delete,
            libc::TIME_OOP => Leap::InProgress,
            libc::TIME_WAIT => Leap::Occurred,
            _ => Leap::None,
        },
    }
}

fn clock_source(root: &Path) -> ClockSource {
    let folder = root.join("sys/devices/system/clocksource/clocksource0");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    ClockSource {
        current: text("current_clocksource").trim().to_owned(),
        available: text("available_clocksource")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ticktax_model::Nanos;
    use ticktax_model::timekeeping::Leap;

    use super::{WatchSettings, clock_source, discipline_of, sys, watch};

    #[test]
    fn a_state_is_converted_from_the_units_of_the_kernel() {
        let (mut state, _) = sys::adjtimex().unwrap();
        state.status = libc::STA_NANO | libc::STA_UNSYNC;
        state.offset = -1_500;
        state.freq = 3 << 15;
        state.tick = 10_001;
        state.maxerror = 7;
        state.esterror = 3;
        state.tai = 37;
        let found = discipline_of(&state, libc::TIME_INS);
        assert!(!found.is_synchronised);
        assert_eq!(found.offset, Nanos(-1_500));
        assert!((found.frequency_ppm - 1.5).abs() < 1e-9);
        assert_eq!(found.tick_us, 10_001);
        assert_eq!(
            (found.max_error, found.estimated_error),
            (Nanos(7_000), Nanos(3_000))
        );
        assert_eq!((found.tai_offset_s, found.leap), (37, Leap::Insert));
        state.status = 0;
        let found = discipline_of(&state, libc::TIME_OK);
        assert!(found.is_synchronised);
        assert_eq!((found.offset, found.leap), (Nanos(-1_500_000), Leap::None));
    }

    #[test]
    fn a_machine_without_clock_sources_has_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(clock_source(folder.path()).current, "");
    }

    #[test]
    fn samples_cover_the_time_watched() {
        let settings = WatchSettings {
            length: Nanos::from_millis(300),
            interval: Nanos::from_millis(100),
        };
        // Without hardware clocks, whose seconds take longer than the watch.
        let folder = tempfile::tempdir().unwrap();
        let found = watch(folder.path(), settings, &|| false).unwrap();
        assert!(found.watched >= settings.length, "{found:?}");
        assert!(found.samples.len() >= 2, "{found:?}");
        assert!(found.rtcs.is_empty());
        // Neither tick nor frequency can be further off than this (`MAXFREQ` and a tick of 10 %).
        assert!(found.rate().unwrap().ppm.abs() < 101_000.0, "{found:?}");
        let once = WatchSettings {
            length: Nanos::ZERO,
            ..settings
        };
        let found = watch(Path::new("/nowhere"), once, &|| false).unwrap();
        assert_eq!(found.samples.len(), 1);
    }
}
