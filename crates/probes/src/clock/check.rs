//! Checks whether the CPU's counter can be trusted as a clock.

mod across;

use std::path::Path;
use std::time::Duration;

use super::anchor::{Bracket, tightest};
use super::counter::NATIVE;
use super::{CounterSource, CounterVerdict, Distrust, Hardware, NANOS_PER_SECOND, now};
use crate::{cpus, sys};

/// Length of each half of the frequency measurement. The drift is the difference between the two.
const HALF: Duration = Duration::from_millis(25);

/// Maximum difference between the frequencies in the two halves, beyond the error of the
/// measurement. Within 50 ms, NTP changes the rate of `CLOCK_MONOTONIC` by less than this.
const DRIFT_LIMIT_PPM: f64 = 100.0;

/// Maximum difference between the measured and the nominal frequency. NTP can change the clock's
/// rate by up to 500 ppm, and the kernel's nominal value may come from an early, imprecise
/// calibration.
const NOMINAL_LIMIT_PPM: f64 = 1000.0;

/// Kernel clock sources that are derived from the CPU's counter.
const COUNTER_BASED: [&str; 6] = [
    "tsc",
    "tsc-early",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "xen",
    "arch_sys_counter",
];

/// Result of checking the CPU's counter.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterCheck {
    /// The counter that was checked, which depends on the architecture.
    pub source: CounterSource,
    /// Whether the counter keeps the same rate in all power states. On x86-64, the flags
    /// `constant_tsc` and `nonstop_tsc` show this. On aarch64, the architecture guarantees it.
    pub invariant: bool,
    /// Frequency in Hz, measured against `CLOCK_MONOTONIC` over 50 ms.
    pub frequency_hz: u64,
    /// Frequency in Hz according to the kernel or the counter itself, if known.
    pub nominal_hz: Option<u64>,
    /// Drift of the counter in parts per million: its rate in the second half of the measurement
    /// divided by its rate in the first half, minus one.
    pub drift_ppm: f64,
    /// Maximum error of `drift_ppm`, derived from the widths of the measurement's brackets.
    pub drift_margin_ppm: f64,
    /// Number of comparisons. Each compares a reading on one CPU with the readings on another CPU
    /// just before and just after it.
    pub comparisons: u32,
    /// Number of comparisons in which the middle reading's value was not between the other two, so
    /// that time seemed to go backwards.
    pub backwards_steps: u32,
    /// The kernel's clock source, or `unknown` if `/sys` does not show it.
    pub clocksource: String,
    /// Whether the counter is trusted and, if not, why.
    pub verdict: CounterVerdict,
}

/// Checks this machine's counter, and reads the kernel's `proc` and `sys` file systems in the
/// directory `root`.
pub(super) fn examine(root: &Path) -> CounterCheck {
    let source = NATIVE;
    let cpuinfo = read(root, "proc/cpuinfo");
    let clocksource = read(
        root,
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
    );
    let available = read(
        root,
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
    );
    let mut check = CounterCheck {
        source,
        invariant: is_invariant(source, &cpuinfo),
        frequency_hz: NANOS_PER_SECOND,
        nominal_hz: sys::declared_frequency().or_else(|| nominal(source, &cpuinfo)),
        drift_ppm: 0.0,
        drift_margin_ppm: 0.0,
        comparisons: 0,
        backwards_steps: 0,
        clocksource: if clocksource.is_empty() {
            "unknown".to_owned()
        } else {
            clocksource
        },
        verdict: CounterVerdict::Trusted,
    };
    if source != CounterSource::Monotonic {
        let steps = across::compare(&cpus::allowed());
        (check.comparisons, check.backwards_steps) = (steps.comparisons, steps.backwards);
        let [start, middle, end] = [Duration::ZERO, HALF, HALF].map(|pause| {
            std::thread::sleep(pause);
            tightest(&mut Hardware, now)
        });
        measure_rate(&mut check, &start, &middle, &end);
    }
    check.verdict = judge(&check, &available);
    check
}

/// Reads a kernel file and removes surrounding whitespace. Returns an empty string if the file does
/// not exist.
fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns whether the kernel says that the counter has the same rate in all power states.
fn is_invariant(source: CounterSource, cpuinfo: &str) -> bool {
    let flags = cpuinfo_field(cpuinfo, "flags").unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    source == CounterSource::Cntvct || (has("constant_tsc") && has("nonstop_tsc"))
}

/// Returns the frequency of the time-stamp counter according to the kernel, or `None` for other
/// counters.
///
/// On x86-64, the kernel derives its delay loop from this counter and shows the result as
/// `bogomips`, which is twice the frequency in MHz.
fn nominal(source: CounterSource, cpuinfo: &str) -> Option<u64> {
    if source != CounterSource::Tsc {
        return None;
    }
    let (mega, fraction) = cpuinfo_field(cpuinfo, "bogomips")?.split_once('.')?;
    let hundredths = mega.parse::<u64>().ok()?.checked_mul(100)? + fraction.parse::<u64>().ok()?;
    Some(hundredths.checked_mul(5_000)?).filter(|hertz| *hertz > 0)
}

fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(field, _)| field.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Computes the frequency and the drift from three brackets, read at the start, in the middle and
/// at the end of the measurement.
fn measure_rate(check: &mut CounterCheck, start: &Bracket, middle: &Bracket, end: &Bracket) {
    let rate = |from: &Bracket, to: &Bracket| {
        let nanos = u128::from((to.monotonic - from.monotonic).0.unsigned_abs().max(1));
        let ticks = u128::from(to.counter().saturating_sub(from.counter()));
        (ticks * u128::from(NANOS_PER_SECOND) + nanos / 2) / nanos
    };
    check.frequency_hz = u64::try_from(rate(start, end)).unwrap_or(u64::MAX).max(1);
    let (first, second) = (rate(start, middle) as f64, rate(middle, end) as f64);
    check.drift_ppm = (second / first.max(1.0) - 1.0) * 1e6;
    // The number of ticks between two brackets is off by at most half the sum of their widths. The
    // drift is the difference between two rates, so their errors add up.
    let open = [start, middle, middle, end]
        .iter()
        .map(|b| b.width() as f64 / 2.0)
        .sum::<f64>();
    let half = end.counter().saturating_sub(start.counter()) as f64 / 2.0;
    check.drift_margin_ppm = open / half.max(1.0) * 1e6;
}

fn judge(check: &CounterCheck, available: &str) -> CounterVerdict {
    if check.source == CounterSource::Monotonic {
        return CounterVerdict::Untrusted(vec![Distrust::NoCounter]);
    }
    let mut reasons = Vec::new();
    if !check.invariant {
        reasons.push(Distrust::NotInvariant);
    }
    // If an administrator has merely selected a different clock source, the counter is still among
    // the available ones. If the kernel has rejected it, it is not.
    let offered = available
        .split_whitespace()
        .any(|source| COUNTER_BASED.contains(&source));
    let used = COUNTER_BASED.contains(&check.clocksource.as_str());
    if check.clocksource != "unknown" && !used && !offered {
        reasons.push(Distrust::RefusedByKernel {
            clocksource: check.clocksource.clone(),
        });
    }
    if check.backwards_steps > 0 {
        let (steps, comparisons) = (check.backwards_steps, check.comparisons);
        reasons.push(Distrust::StepsBackwards { steps, comparisons });
    }
    if check.drift_ppm.abs() > DRIFT_LIMIT_PPM + check.drift_margin_ppm {
        reasons.push(Distrust::Drifts {
            ppm: check.drift_ppm,
        });
    }
    if let Some(nominal) = check.nominal_hz {
        let ppm = (check.frequency_hz as f64 / nominal as f64 - 1.0) * 1e6;
        if ppm.abs() > NOMINAL_LIMIT_PPM {
            reasons.push(Distrust::OffNominal { deviation_ppm: ppm });
        }
    }
    if reasons.is_empty() {
        CounterVerdict::Trusted
    } else {
        CounterVerdict::Untrusted(reasons)
    }
}

#[cfg(test)]
mod tests;
