//! Whether the CPU's counter can be trusted as a clock.

mod across;

use std::path::Path;
use std::time::Duration;

use super::anchor::{Bracket, tightest};
use super::counter::NATIVE;
use super::{CounterSource, CounterVerdict, Distrust, Hardware, NANOS_PER_SECOND, now};
use crate::{cpus, sys};

/// The frequency is measured over two halves of this length.
const HALF: Duration = Duration::from_millis(25);

/// How far the two halves' frequencies may lie apart, beyond what their brackets leave open. NTP
/// changes the rate of `CLOCK_MONOTONIC` by less than this within 50 ms.
const DRIFT_LIMIT_PPM: f64 = 100.0;

/// How far the measured frequency may lie from the nominal one. NTP slews by up to 500 ppm, and the
/// kernel's own figure may come from an early, coarser calibration.
const NOMINAL_LIMIT_PPM: f64 = 1000.0;

/// Clock sources of the kernel that are the CPU's counter, scaled.
const COUNTER_BASED: [&str; 6] = [
    "tsc",
    "tsc-early",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "xen",
    "arch_sys_counter",
];

/// What an examination of the CPU's counter found, all of it measured but the nominal frequency.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterCheck {
    /// The counter that was examined: what this architecture offers.
    pub source: CounterSource,
    /// Whether it counts at one rate in all power states (`constant_tsc` and `nonstop_tsc` on
    /// x86-64; the architecture's promise on aarch64).
    pub invariant: bool,
    /// Ticks in a second of `CLOCK_MONOTONIC`, measured over 50 ms.
    pub frequency_hz: u64,
    /// The frequency that the kernel or the counter declares, where one does.
    pub nominal_hz: Option<u64>,
    /// By how much the second half of the measurement ran faster than the first, in parts per
    /// million.
    pub drift_ppm: f64,
    /// How far off `drift_ppm` may be, from the width of the brackets that it rests on.
    pub drift_margin_ppm: f64,
    /// How many readings on one CPU were enclosed by two on another.
    pub comparisons: u32,
    /// How many of these readings lay outside their enclosure: steps backwards in time.
    pub backwards_steps: u32,
    /// The kernel's clock source, `unknown` where `/sys` does not tell.
    pub clocksource: String,
    /// The judgement of all this.
    pub verdict: CounterVerdict,
}

/// Examines this machine's counter, with the kernel's files under `root`.
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

/// A file of the kernel, trimmed; empty where there is none.
fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Whether the kernel says that the counter keeps its rate in all power states.
fn is_invariant(source: CounterSource, cpuinfo: &str) -> bool {
    let flags = cpuinfo_field(cpuinfo, "flags").unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    source == CounterSource::Cntvct || (has("constant_tsc") && has("nonstop_tsc"))
}

/// The frequency of the time-stamp counter as the kernel calibrated it.
///
/// x86-64 derives its delay loop from that counter and prints it as `bogomips`: twice its frequency
/// in MHz.
fn nominal(source: CounterSource, cpuinfo: &str) -> Option<u64> {
    if source != CounterSource::Tsc {
        return None;
    }
    let (mega, fraction) = cpuinfo_field(cpuinfo, "bogomips")?.split_once('.')?;
    let hundredths = mega.parse::<u64>().ok()?.checked_mul(100)? + fraction.parse::<u64>().ok()?;
    Some(hundredths.checked_mul(5_000)?).filter(|hertz| *hertz > 0)
}

/// The first CPU's value of a field of `/proc/cpuinfo`.
fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(field, _)| field.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Fills in the frequency and its change from three brackets.
fn measure_rate(check: &mut CounterCheck, start: &Bracket, middle: &Bracket, end: &Bracket) {
    let rate = |from: &Bracket, to: &Bracket| {
        let nanos = u128::from((to.monotonic - from.monotonic).0.unsigned_abs().max(1));
        let ticks = u128::from(to.counter().saturating_sub(from.counter()));
        (ticks * u128::from(NANOS_PER_SECOND) + nanos / 2) / nanos
    };
    check.frequency_hz = u64::try_from(rate(start, end)).unwrap_or(u64::MAX).max(1);
    let (first, second) = (rate(start, middle) as f64, rate(middle, end) as f64);
    check.drift_ppm = (second / first.max(1.0) - 1.0) * 1e6;
    // Each half is off by at most the half widths at its ends; the drift is their difference.
    let open = [start, middle, middle, end]
        .iter()
        .map(|b| b.width() as f64 / 2.0)
        .sum::<f64>();
    let half = end.counter().saturating_sub(start.counter()) as f64 / 2.0;
    check.drift_margin_ppm = open / half.max(1.0) * 1e6;
}

/// Judges a counter by what was found.
fn judge(check: &CounterCheck, available: &str) -> CounterVerdict {
    if check.source == CounterSource::Monotonic {
        return CounterVerdict::Untrusted(vec![Distrust::NoCounter]);
    }
    let mut reasons = Vec::new();
    if !check.invariant {
        reasons.push(Distrust::NotInvariant);
    }
    // An administrator may have chosen another source; a counter that the kernel found wanting is
    // gone from the list of those available.
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
            reasons.push(Distrust::OffNominal { ppm });
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
