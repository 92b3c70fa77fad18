//! `ticktax clock`: watches the system clock and the hardware clocks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ticktax_model::Nanos;
use ticktax_model::timekeeping::{
    ClockLimitation, ElevenMinuteMode, LoggedReading, Rtc, RtcDrift, RtcReading, Timekeeping,
};
use ticktax_probes::timekeeping::{WatchSettings, step_offset, watch};
use ticktax_store::disk::Temporary;
use ticktax_store::text::TextError;

use crate::arguments::ClockArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::state::StateFolder;
use crate::terminal::Terminal;
use crate::wall_clock::unix_ms;

/// Maximum number of readings in the log.
const MOST: usize = 1_000;
/// Largest difference of the system clock's step offset that is not a step, because the offset is
/// not read in one instant.
const NO_STEP: Nanos = Nanos::from_millis(1);
/// Longest plausible time between two readings of the same boot: 31 years.
const LONGEST_MS: i64 = 1_000_000_000_000;
/// Largest plausible rate of a hardware clock, in parts per million. A larger change means that
/// something set it between two readings.
const MAX_PPM: i64 = 500;

pub(crate) fn run(typed: &ClockArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let settings = WatchSettings {
        length: typed.length,
        interval: typed.interval,
    };
    let progress = terminal.progress(Extent::Unknown, "Watching the clocks");
    let found = watch(Path::new("/"), settings, &|| interrupt.signal().is_some());
    progress.done();
    let mut found = found.map_err(|error| Failure::Clock(error.desc()))?;
    if !found.rtcs.is_empty() {
        let log = Log::new(typed.log.as_ref())?;
        log.add_drift(&mut found);
    }
    let output = Output::to_stdout(typed.format);
    output::put(&found.into(), html, output, terminal)?;
    Ok(ExitCode::SUCCESS)
}

/// File with the last readings of earlier runs, one JSON object per line.
struct Log {
    path: PathBuf,
}

impl Log {
    fn new(named: Option<&PathBuf>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.clone(),
            None => StateFolder::Clock.path("--log")?.join("readings.jsonl"),
        };
        Ok(Self { path })
    }

    /// Stores the last reading of each hardware clock, and computes the drifts. A log that cannot
    /// be used becomes a limitation.
    fn add_drift(&self, found: &mut Timekeeping) {
        // While the kernel sets the hardware clock every 11 minutes, readings of other runs say
        // nothing about its rate.
        let is_free = found.eleven_minute_mode() == ElevenMinuteMode::Unsynchronised;
        let (mut logged, mut problem) = match self.read() {
            Ok(entries) => (entries, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let mut new = Vec::new();
        let watched = found.watched;
        let last_step = found.steps.last().map(|step| step.at);
        for rtc in &mut found.rtcs {
            let Some(last) = rtc.readings.last().copied() else {
                continue;
            };
            let entry = entry_of(rtc, last, watched);
            let mut readings = match &entry {
                Some(entry) if is_free && rtc.settings.is_empty() && last_step.is_none() => {
                    comparable(&logged, entry, last.at)
                }
                _ => Vec::new(),
            };
            readings.extend(since_setting(rtc, last_step));
            rtc.drift = RtcDrift::over(&readings);
            new.extend(entry);
        }
        logged.extend(new);
        if problem.is_none()
            && let Err(why) = self.write(&logged)
        {
            problem = Some(why);
        }
        if let Some(why) = problem {
            found.limitations.push(ClockLimitation::LogUnusable {
                path: self.path.display().to_string(),
                why,
            });
        }
    }

    /// Reads the log. If it does not exist, it is empty.
    fn read(&self) -> Result<Vec<LoggedReading>, String> {
        if matches!(self.path.try_exists(), Ok(false)) {
            return Ok(Vec::new());
        }
        let text = ticktax_store::text::read(&self.path, "log").map_err(|error| match error {
            TextError::Unreadable { source, .. } => source.to_string(),
            other @ TextError::NotUtf8 { .. } => other.to_string(),
        })?;
        let entries = text.lines().filter(|line| !line.is_empty());
        let entries: Result<Vec<LoggedReading>, _> = entries.map(serde_json::from_str).collect();
        let entries =
            entries.map_err(|_| "it contains something other than readings".to_owned())?;
        if entries.iter().any(|entry| entry.uncertainty_ns < 0) {
            return Err("it contains a negative uncertainty".to_owned());
        }
        Ok(entries)
    }

    /// Replaces the log by these readings, without the oldest ones if there are too many.
    fn write(&self, entries: &[LoggedReading]) -> Result<(), String> {
        let newest = entries.len().saturating_sub(MOST);
        let newest = entries.get(newest..).unwrap_or_default();
        let lines = newest
            .iter()
            .filter_map(|entry| serde_json::to_string(entry).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        let write = || -> std::io::Result<()> {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let file = Temporary::beside(&self.path)?;
            file.handle()?.write_all(text.as_bytes())?;
            file.appear()
        };
        write().map_err(|error| error.kind().to_string())
    }
}

fn entry_of(rtc: &Rtc, last: RtcReading, watched: Nanos) -> Option<LoggedReading> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(LoggedReading {
        rtc: rtc.name.clone(),
        boot: boot.trim().to_owned(),
        unix_ms: unix_ms() - (watched - last.at).0 / 1_000_000,
        step_offset_ns: step_offset()?.0,
        offset_ns: last.offset.0,
        uncertainty_ns: last.uncertainty.0,
    })
}

/// Returns the readings of earlier runs between which and `now` neither clock was set, as far as
/// the log shows: those of the same boot, after the last step, and without an implausible change.
/// Their times are relative to the same origin as `at`, the time of `now`.
fn comparable(earlier: &[LoggedReading], now: &LoggedReading, at: Nanos) -> Vec<RtcReading> {
    let mut readings = Vec::new();
    let mut next = now;
    for entry in earlier.iter().rev().filter(|entry| entry.rtc == now.rtc) {
        let elapsed_ms = next.unix_ms.saturating_sub(entry.unix_ms);
        let since = |old: i64, new: i64| Nanos(new.saturating_sub(old).saturating_abs());
        let is_stepped = since(entry.step_offset_ns, now.step_offset_ns) > NO_STEP;
        // One ppm of a millisecond is a nanosecond.
        let largest = elapsed_ms
            .saturating_mul(MAX_PPM)
            .saturating_add(entry.uncertainty_ns)
            .saturating_add(next.uncertainty_ns);
        let change = since(entry.offset_ns, next.offset_ns);
        let is_plausible = (0..LONGEST_MS).contains(&elapsed_ms) && change <= Nanos(largest);
        if entry.boot != now.boot || is_stepped || !is_plausible {
            break;
        }
        readings.push(RtcReading {
            at: at - Nanos::from_millis(now.unix_ms - entry.unix_ms),
            offset: Nanos(entry.offset_ns),
            uncertainty: Nanos(entry.uncertainty_ns),
        });
        next = entry;
    }
    readings.reverse();
    readings
}

/// Returns the readings of this run after the last time that either clock was set.
fn since_setting(rtc: &Rtc, last_step: Option<Nanos>) -> impl Iterator<Item = RtcReading> {
    let setting = rtc.settings.last().map(|last| last.before);
    let from = setting.max(last_step).unwrap_or(Nanos(i64::MIN));
    let readings = rtc.readings.iter().copied();
    readings.filter(move |reading| reading.at >= from)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Log, LoggedReading, comparable};

    fn entry(seconds: i64, offset_ms: i64) -> LoggedReading {
        LoggedReading {
            rtc: "rtc0".to_owned(),
            boot: "one".to_owned(),
            unix_ms: seconds * 1_000,
            step_offset_ns: 5,
            offset_ns: offset_ms * 1_000_000,
            uncertainty_ns: 500_000,
        }
    }

    #[test]
    fn readings_count_back_to_the_last_time_that_a_clock_was_set() {
        let times = |earlier: &[LoggedReading]| -> Vec<i64> {
            let readings = comparable(earlier, &entry(7_200, 100), Nanos::from_secs(5));
            readings
                .iter()
                .map(|reading| reading.at.0 / 1_000_000_000)
                .collect()
        };
        // 20 ms per hour are 5.6 ppm.
        let plain = [entry(0, 60), entry(3_600, 80)];
        assert_eq!(times(&plain), [-7_195, -3_595]);
        let other_boot = LoggedReading {
            boot: "two".to_owned(),
            ..entry(1_800, 70)
        };
        assert_eq!(
            times(&[entry(0, 60), other_boot, entry(3_600, 80)]),
            [-3_595]
        );
        let stepped = LoggedReading {
            step_offset_ns: 2_000_000,
            ..entry(1_800, 70)
        };
        assert_eq!(times(&[stepped, entry(3_600, 80)]), [-3_595]);
        // 10 s within an hour are 2,800 ppm, so something set the clock.
        assert_eq!(times(&[entry(0, 10_080), entry(3_600, 80)]), [-3_595]);
        let hostile = LoggedReading {
            unix_ms: i64::MIN,
            offset_ns: i64::MAX,
            step_offset_ns: i64::MIN,
            ..entry(0, 0)
        };
        assert_eq!(times(&[hostile, entry(3_600, 80)]), [-3_595]);
        let other_clock = LoggedReading {
            rtc: "rtc1".to_owned(),
            ..entry(1_800, 9_999)
        };
        assert_eq!(times(&[entry(0, 60), other_clock]), [-7_195]);
    }

    #[test]
    fn a_log_is_bounded_and_refuses_other_contents() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log {
            path: folder.path().join("clock/readings.jsonl"),
        };
        assert!(log.read().unwrap().is_empty());
        let entries: Vec<_> = (0..1_500).map(|seconds| entry(seconds, 1)).collect();
        log.write(&entries).unwrap();
        assert_eq!(log.read().unwrap(), entries[500..]);
        let negative = LoggedReading {
            uncertainty_ns: -1,
            ..entry(0, 0)
        };
        log.write(&[negative]).unwrap();
        assert!(log.read().is_err());
        std::fs::write(&log.path, "hello\n").unwrap();
        assert!(log.read().is_err());
    }
}
