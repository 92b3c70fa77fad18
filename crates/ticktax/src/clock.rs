//! `ticktax clock`: watches the system clock and the hardware clocks.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ticktax_model::Nanos;
use ticktax_model::timekeeping::{
    ClockLimitation, ElevenMinuteMode, LoggedReading, Rtc, RtcDrift, RtcReading, Timekeeping,
};
use ticktax_probes::timekeeping::{WatchSettings, step_offset, watch};

use crate::arguments::ClockArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::state::StateFolder;
use crate::terminal::Terminal;
use crate::wall_clock::unix_ms;

/// Size above which the older half of the log is dropped.
const LARGEST: u64 = 256 << 10;
/// Largest difference of the system clock's step offset that is not a step, because the offset is
/// not read in one instant.
const NO_STEP: Nanos = Nanos::from_millis(1);
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
        let (earlier, mut problem) = match self.read() {
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
                    comparable(&earlier, entry, last.at)
                }
                _ => Vec::new(),
            };
            readings.extend(since_setting(rtc, last_step));
            rtc.drift = RtcDrift::over(&readings);
            new.extend(entry);
        }
        if problem.is_none()
            && let Err(why) = self.append(&new)
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

    fn read(&self) -> Result<Vec<LoggedReading>, String> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.kind().to_string()),
        };
        let entries = text.lines().filter(|line| !line.is_empty());
        let entries: Result<Vec<LoggedReading>, _> = entries.map(serde_json::from_str).collect();
        entries.map_err(|_| "it contains something other than readings".to_owned())
    }

    /// Appends entries. If the log is large, drops its older half.
    fn append(&self, new: &[LoggedReading]) -> Result<(), String> {
        let failed = |error: std::io::Error| error.kind().to_string();
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let lines = |entries: &[LoggedReading]| -> String {
            let lines = entries
                .iter()
                .filter_map(|entry| serde_json::to_string(entry).ok());
            lines.map(|line| line + "\n").collect()
        };
        if fs::metadata(&self.path).is_ok_and(|facts| facts.len() > LARGEST) {
            let entries = self.read()?;
            let newer = entries.get(entries.len() / 2..).unwrap_or_default();
            let whole = lines(newer) + &lines(new);
            let beside = self.path.with_extension("new");
            fs::write(&beside, whole).map_err(failed)?;
            return fs::rename(&beside, &self.path).map_err(failed);
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let mut file = file.map_err(failed)?;
        // A single write, so that two runs do not mix their lines.
        file.write_all(lines(new).as_bytes()).map_err(failed)
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
        let elapsed_ms = next.unix_ms - entry.unix_ms;
        let is_stepped = (entry.step_offset_ns - now.step_offset_ns).abs() > NO_STEP.0;
        // One ppm of a millisecond is a nanosecond.
        let largest = elapsed_ms * MAX_PPM + entry.uncertainty_ns + next.uncertainty_ns;
        let change = (next.offset_ns - entry.offset_ns).abs();
        if entry.boot != now.boot || is_stepped || elapsed_ms < 0 || change > largest {
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
        for seconds in 0..4_000 {
            log.append(&[entry(seconds, 1)]).unwrap();
        }
        let entries = log.read().unwrap();
        assert!(std::fs::metadata(&log.path).unwrap().len() < 2 * super::LARGEST);
        assert_eq!(entries.last().unwrap().unix_ms, 3_999_000);
        let newer = entries
            .windows(2)
            .all(|pair| pair[1].unix_ms == pair[0].unix_ms + 1_000);
        assert!(newer);
        std::fs::write(&log.path, "hello\n").unwrap();
        assert!(log.read().is_err());
    }
}
