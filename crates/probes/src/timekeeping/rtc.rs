//! Hardware clocks (RTCs), which the kernel shows in `/sys/class/rtc`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::time::ClockId;
use ticktax_model::Nanos;
use ticktax_model::timekeeping::{ClockLimitation, Rtc, RtcReading, RtcSetting};

use super::{ATTEMPTS, Watch, read, steady};

const SECOND: Nanos = Nanos::from_secs(1);
/// Time between two readings that look for the next second.
const STEP: Nanos = Nanos::from_micros(500);
/// Time before the expected change of the second at which the readings begin.
const EARLY: Nanos = Nanos::from_millis(5);
/// Longest search. The second of a running clock changes within this time.
const LONGEST: Nanos = Nanos::from_millis(1_200);
/// Largest rate of a hardware clock relative to the steady clock. Crystals differ by tens of
/// ppm.
const MAX_PPM: i64 = 500;
/// Smallest change of the offset that counts as a setting.
const LEAST: Nanos = Nanos::from_millis(2);

/// Why a hardware clock has no readings.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Unreadable {
    #[error("{0}")]
    File(ErrorKind),
    #[error("it does not contain a time")]
    NoTime,
    #[error("its second does not change")]
    Stopped,
}

/// System time, and the steady clock at the same moment.
struct RealTime {
    real: Nanos,
    steady: Nanos,
    uncertainty: Nanos,
}

/// Reads both clocks several times, and returns the most certain result.
fn real_time() -> Result<RealTime, Errno> {
    let once = || {
        let before = steady()?;
        let real = read(ClockId::CLOCK_REALTIME)?;
        let half = Nanos((steady()? - before).0 / 2);
        Ok(RealTime {
            real,
            steady: before + half,
            uncertainty: half + Nanos(1),
        })
    };
    let mut best: RealTime = once()?;
    for _ in 1..ATTEMPTS {
        let next = once()?;
        if next.uncertainty < best.uncertainty {
            best = next;
        }
    }
    Ok(best)
}

/// A hardware clock that is being watched.
pub(super) struct Device {
    folder: PathBuf,
    rtc: Rtc,
    /// Time on the steady clock, and second of the hardware clock, at the last change of the
    /// second.
    last: Option<Edge>,
    unreadable: Option<Unreadable>,
}

#[derive(Clone, Copy)]
struct Edge {
    raw: Nanos,
    second: Nanos,
    uncertainty: Nanos,
}

impl Device {
    /// Lists the hardware clocks by name.
    pub(super) fn all(root: &Path) -> Vec<Self> {
        let entries = fs::read_dir(root.join("sys/class/rtc"))
            .into_iter()
            .flatten();
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        folders.into_iter().map(Self::new).collect()
    }

    fn new(folder: PathBuf) -> Self {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let rtc = Rtc {
            name: name.into_owned(),
            driver: text("name").trim().to_owned(),
            sets_system_clock: text("hctosys").trim() == "1",
            readings: Vec::new(),
            settings: Vec::new(),
            drift: None,
        };
        Self {
            folder,
            rtc,
            last: None,
            unreadable: None,
        }
    }

    /// Reads the second of the hardware clock.
    fn second(&self) -> Result<Nanos, Unreadable> {
        let text = fs::read_to_string(self.folder.join("since_epoch"));
        let text = text.map_err(|error| Unreadable::File(error.kind()))?;
        let second = text.trim().parse::<i64>().ok();
        let second = second.filter(|second| (0..1 << 33).contains(second));
        second.map(Nanos::from_secs).ok_or(Unreadable::NoTime)
    }

    /// Waits until the clock's second changes, and records the time of the change. Gives up if the
    /// clock cannot be read, or does not run.
    pub(super) fn read(&mut self, watch: &mut Watch<'_>, stop: &dyn Fn() -> bool) {
        if self.unreadable.is_some() {
            return;
        }
        let Ok(mut now) = steady() else {
            return;
        };
        if let Some(last) = self.last {
            let since = Nanos((now + EARLY - last.raw).0.rem_euclid(SECOND.0));
            watch.wait_until(now + (SECOND - since), stop);
        }
        let begin = now;
        let mut first: Option<Nanos> = None;
        // No later than the last reading with the old second.
        let mut before = now;
        while now - begin < LONGEST + SECOND && !stop() {
            let Ok(start) = steady() else {
                return;
            };
            let second = match self.second() {
                Ok(second) => second,
                Err(why) => {
                    self.unreadable = Some(why);
                    return;
                }
            };
            let Ok(end) = steady() else {
                return;
            };
            now = end;
            match first {
                Some(first) if second == first + SECOND => {
                    self.found(watch, before, end, second);
                    return;
                }
                // Something set the clock during the search. The next reading shows by how much.
                Some(first) if second != first => return,
                _ => {}
            }
            first = Some(second);
            before = start;
            watch.wait_until(now + STEP, stop);
        }
        if !stop() {
            self.unreadable = Some(Unreadable::Stopped);
        }
    }

    /// Records that the second changed between two times on the steady clock.
    fn found(&mut self, watch: &mut Watch<'_>, before: Nanos, after: Nanos, second: Nanos) {
        watch.notice_step();
        let Ok(now) = real_time() else {
            return;
        };
        let half = Nanos((after - before).0 / 2);
        let at = before + half;
        let reading = RtcReading {
            at: at - watch.start_raw,
            offset: second - (now.real - (now.steady - at)),
            uncertainty: half + now.uncertainty,
        };
        self.rtc.readings.push(reading);
        let edge = Edge {
            raw: at,
            second,
            uncertainty: reading.uncertainty,
        };
        if let Some(last) = self.last.replace(edge) {
            let elapsed = edge.raw - last.raw;
            let change = (edge.second - last.second) - elapsed;
            let uncertainty = edge.uncertainty + last.uncertainty;
            let limit = LEAST + uncertainty + Nanos(elapsed.0 / 1_000_000 * MAX_PPM);
            if change.0.abs() > limit.0 {
                self.rtc.settings.push(RtcSetting {
                    after: last.raw - watch.start_raw,
                    before: reading.at,
                    change,
                    uncertainty,
                });
            }
        }
    }

    pub(super) fn limitation(&self) -> Option<ClockLimitation> {
        let why = self.unreadable?;
        Some(ClockLimitation::RtcUnreadable {
            name: self.rtc.name.clone(),
            why: why.to_string(),
        })
    }

    pub(super) fn finish(self) -> Rtc {
        self.rtc
    }
}
