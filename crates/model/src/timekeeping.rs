//! The kernel's clocks: how the system clock is disciplined, what changed it, and how it relates to
//! the hardware clocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// State of a machine's clocks, and how they changed while they were watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timekeeping {
    /// Length of the watch.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// State of the system clock at the end.
    pub discipline: Discipline,
    /// Clock source at the end.
    pub source: ClockSource,
    /// Samples of the system clock, at regular intervals.
    pub samples: Vec<ClockSample>,
    /// Steps of the system clock, oldest first.
    pub steps: Vec<ClockStep>,
    /// Changes of the clock source, oldest first.
    pub switches: Vec<SourceSwitch>,
    /// The machine's hardware clocks. Empty if it has none.
    pub rtcs: Vec<Rtc>,
    /// Data that could not be read.
    pub limitations: Vec<ClockLimitation>,
}

impl Timekeeping {
    /// Returns the mean rate at which the system clock ran faster than `CLOCK_MONOTONIC_RAW`, in
    /// parts per million, with the uncertainty of the readings. Returns `None` with fewer than two
    /// samples. Steps do not count.
    pub fn rate(&self) -> Option<Rate> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let elapsed = last.raw - first.raw;
        (elapsed > Nanos::ZERO).then(|| Rate {
            ppm: (last.ahead - first.ahead).0 as f64 * 1e6 / elapsed.0 as f64,
            uncertainty_ppm: (last.uncertainty + first.uncertainty).0 as f64 * 1e6
                / elapsed.0 as f64,
        })
    }

    /// Returns whether the kernel could set the hardware clock, and why not if it couldn't. A
    /// kernel built with `CONFIG_RTC_SYSTOHC` does so every 11 minutes while the system clock is
    /// synchronised.
    pub fn eleven_minute_mode(&self) -> ElevenMinuteMode {
        if self.rtcs.is_empty() {
            ElevenMinuteMode::NoRtc
        } else if !self.discipline.is_synchronised {
            ElevenMinuteMode::Unsynchronised
        } else {
            ElevenMinuteMode::Possible
        }
    }
}

/// Rate of a clock relative to another one, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The rate. A positive number means that the clock is faster.
    pub ppm: f64,
    /// Largest error of the rate that the readings of the clocks allow.
    pub uncertainty_ppm: f64,
}

/// Whether the kernel sets the hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElevenMinuteMode {
    /// The machine has no hardware clock.
    NoRtc,
    /// The system clock is not synchronised, so the kernel does not set the hardware clock.
    Unsynchronised,
    /// The kernel sets the hardware clock, if it was built to do so.
    Possible,
}

/// State of the system clock, from `adjtimex`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discipline {
    /// Whether a program has told the kernel that the clock is synchronised (`STA_UNSYNC` is
    /// clear).
    pub is_synchronised: bool,
    /// Part of the last correction that the kernel has yet to apply.
    #[serde(rename = "offset_ns")]
    pub offset: Nanos,
    /// Correction of the clock's frequency, in parts per million.
    pub frequency_ppm: f64,
    /// Length of a tick in microseconds, normally 10,000. Programs change it to make the clock
    /// faster or slower by more than 500 ppm.
    pub tick_us: i64,
    /// Maximum error according to the program that sets the clock.
    #[serde(rename = "max_error_ns")]
    pub max_error: Nanos,
    /// Estimated error according to the program that sets the clock.
    #[serde(rename = "estimated_error_ns")]
    pub estimated_error: Nanos,
    /// International Atomic Time minus UTC in seconds; 0 if nobody has told the kernel.
    pub tai_offset_s: i32,
    /// Leap second.
    pub leap: Leap,
}

/// Leap second that the kernel will insert or delete, or just has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Leap {
    /// None is planned.
    None,
    /// A second will be inserted at the end of the UTC day.
    Insert,
    /// A second will be deleted at the end of the UTC day.
    Delete,
    /// A second is being inserted.
    InProgress,
    /// A second was inserted or deleted, and the program that sets the clock has not confirmed it.
    Occurred,
}

/// Clock source: the counter that all of the kernel's clocks are read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSource {
    /// The current one; empty if it is unknown.
    pub current: String,
    /// All that the kernel would use, best first.
    pub available: Vec<String>,
}

/// Reading of the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSample {
    /// Time on `CLOCK_MONOTONIC_RAW` since the first sample. Nothing adjusts this clock.
    #[serde(rename = "raw_ns")]
    pub raw: Nanos,
    /// Time by which `CLOCK_MONOTONIC` has advanced more than `CLOCK_MONOTONIC_RAW` since the first
    /// sample, because of the frequency correction and of slewing.
    #[serde(rename = "ahead_ns")]
    pub ahead: Nanos,
    /// Maximum error of `ahead`: half the time that the reading took.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
    /// Correction that the kernel has yet to apply.
    #[serde(rename = "offset_ns")]
    pub offset: Nanos,
    /// Correction of the clock's frequency, in parts per million.
    pub frequency_ppm: f64,
}

/// Step of the system clock: a program or a leap second set it, and it jumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStep {
    /// Time since the first sample.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Size of the jump; positive if the clock jumped forward.
    #[serde(rename = "size_ns")]
    pub size: Nanos,
    /// Maximum error of the size.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
}

/// Change of the clock source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceSwitch {
    /// Time since the first sample, at which the change was noticed. It happened up to an interval
    /// earlier.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Clock source before.
    pub from: String,
    /// Clock source after.
    pub to: String,
}

/// A hardware clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rtc {
    /// Name of the device, such as `rtc0`.
    pub name: String,
    /// Driver and device, such as `rtc_cmos 00:04`.
    pub driver: String,
    /// Whether the kernel set the system clock from it at boot or after a sleep.
    pub sets_system_clock: bool,
    /// Readings, oldest first.
    pub readings: Vec<RtcReading>,
    /// Changes of the hardware clock that its rate does not explain.
    pub settings: Vec<RtcSetting>,
    /// Drift relative to the system clock, from readings of earlier runs as well; `None` if they
    /// span too little time.
    pub drift: Option<RtcDrift>,
}

/// Reading of a hardware clock at the moment at which its second changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RtcReading {
    /// Time since the first sample.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Hardware clock minus system clock, if the hardware clock holds UTC.
    #[serde(rename = "offset_ns")]
    pub offset: Nanos,
    /// Maximum error of the offset: half the time between the readings before and after the change.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
}

/// Reading of a hardware clock that is kept for later runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedReading {
    /// Name of the device.
    pub rtc: String,
    /// The kernel's `boot_id`.
    pub boot: String,
    /// Time in milliseconds since 1970, on the system clock.
    pub unix_ms: i64,
    /// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME` in ns, which changes only by a step.
    pub step_offset_ns: i64,
    /// Hardware clock minus system clock in ns.
    pub offset_ns: i64,
    /// Maximum error of the offset in ns.
    pub uncertainty_ns: i64,
}

/// Something set a hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RtcSetting {
    /// Earliest time, since the first sample.
    #[serde(rename = "after_ns")]
    pub after: Nanos,
    /// Latest time, since the first sample.
    #[serde(rename = "before_ns")]
    pub before: Nanos,
    /// Change of the offset between these times, without steps of the system clock.
    #[serde(rename = "change_ns")]
    pub change: Nanos,
    /// Maximum error of the change.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
}

/// Drift of a hardware clock relative to the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RtcDrift {
    /// Rate in parts per million; positive if the hardware clock is faster.
    pub drift_ppm: f64,
    /// Maximum error of the rate, from the errors of the first and the last reading.
    pub uncertainty_ppm: f64,
    /// Time between the first and the last reading.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Number of readings.
    pub readings: u64,
}

/// Shortest time between two readings that show a drift. Readings are off by about a millisecond,
/// which is 17 ppm of a minute.
const SHORTEST: Nanos = Nanos::from_secs(60);

impl RtcDrift {
    /// Computes the drift from readings, oldest first, between which no clock was set. Returns
    /// `None` if they span less than a minute.
    pub fn over(readings: &[RtcReading]) -> Option<Self> {
        let (first, last) = (readings.first()?, readings.last()?);
        let span = last.at - first.at;
        if span < SHORTEST {
            return None;
        }
        let ppm = |time: Nanos| time.0 as f64 * 1e6 / span.0 as f64;
        Some(Self {
            drift_ppm: ppm(last.offset - first.offset),
            uncertainty_ppm: ppm(last.uncertainty + first.uncertainty),
            span,
            readings: readings.len() as u64,
        })
    }

    /// Returns the time until the clocks differ by `limit`, if they now differ by `offset`.
    /// Returns `None` if the direction of the drift is uncertain. A difference that shrinks first
    /// passes through zero.
    pub fn time_until(&self, offset: Nanos, limit: Nanos) -> Option<Nanos> {
        if self.drift_ppm.abs() <= self.uncertainty_ppm {
            return None;
        }
        let left = if self.drift_ppm > 0.0 {
            limit - offset
        } else {
            limit + offset
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float cast to an integer saturates"
        )]
        let time = (left.0 as f64 * 1e6 / self.drift_ppm.abs()) as i64;
        Some(Nanos(time.max(0)))
    }
}

/// Data about the clocks that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ClockLimitation {
    /// The kernel does not list its clock sources.
    NoClockSource,
    /// The kernel reports no steps, so only the samples show them.
    NoStepEvents,
    /// The kernel's list of devices cannot be read, so hardware clocks are unknown.
    DevicesUnknown,
    /// A hardware clock cannot be read, or does not run.
    RtcUnreadable {
        /// Name of the device.
        name: String,
        /// Reason.
        why: String,
    },
    /// Earlier readings cannot be used, or new ones cannot be stored.
    LogUnusable {
        /// Path of the log.
        path: String,
        /// Reason.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::{Nanos, RtcDrift, RtcReading};

    fn drift(ppm: f64) -> RtcDrift {
        RtcDrift {
            drift_ppm: ppm,
            uncertainty_ppm: 1.0,
            span: Nanos::from_secs(3_600),
            readings: 2,
        }
    }

    #[test]
    fn a_drift_is_the_change_of_the_offset_over_time() {
        let reading = |seconds: i64, offset_ms: i64| RtcReading {
            at: Nanos::from_secs(seconds),
            offset: Nanos::from_millis(offset_ms),
            uncertainty: Nanos::from_micros(500),
        };
        assert!(RtcDrift::over(&[]).is_none());
        assert!(RtcDrift::over(&[reading(0, 0), reading(59, 7)]).is_none());
        let readings = [reading(0, 100), reading(50, 3), reading(1_000, 80)];
        let drift = RtcDrift::over(&readings).unwrap();
        // 20 ms in 1,000 s, with 1 ms of uncertainty.
        assert!((drift.drift_ppm + 20.0).abs() < 1e-9, "{drift:?}");
        assert!((drift.uncertainty_ppm - 1.0).abs() < 1e-9, "{drift:?}");
        assert_eq!((drift.span, drift.readings), (Nanos::from_secs(1_000), 3));
    }

    #[test]
    fn a_drift_reaches_a_limit_in_its_direction() {
        let limit = Nanos::from_millis(128);
        // 10 ppm are 10 µs per second: 128 ms take 12,800 s.
        let seconds = |ppm: f64, offset: i64| {
            let time = drift(ppm).time_until(Nanos::from_millis(offset), limit);
            time.map(|time| time.0 / 1_000_000_000)
        };
        assert_eq!(seconds(10.0, 0), Some(12_800));
        assert_eq!(seconds(10.0, 64), Some(6_400));
        assert_eq!(seconds(10.0, -64), Some(19_200));
        assert_eq!(seconds(-10.0, -64), Some(6_400));
        assert_eq!(seconds(10.0, 500), Some(0));
        assert_eq!(seconds(0.5, 0), None);
    }
}
