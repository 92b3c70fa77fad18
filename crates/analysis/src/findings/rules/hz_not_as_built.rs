//! The tick that was measured, beside the one that the kernel was built for.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

use ticktax_model::tick::Frequency;

/// Deviations up to here are no finding, in parts of the whole. Clocks differ by less.
const TOLERANCE: f64 = 0.02;
/// Intervals that it takes: a second of 250 Hz.
const MIN: u64 = 250;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some((tick, hz)) = facts
        .tick
        .and_then(|tick| Some((tick, tick.hz_configured?)))
    else {
        return Vec::new();
    };
    // The rule about the divider speaks of it.
    if facts.parameter("divider").is_some() {
        return Vec::new();
    }
    let hz = f64::from(hz);
    let stops_while_busy = facts
        .cpus_in("sys/devices/system/cpu/nohz_full")
        .unwrap_or_default();
    let off = |measured: &Frequency| {
        let away = (measured.hz - hz).abs();
        measured.intervals >= MIN && away > measured.plus_minus && away > TOLERANCE * hz
    };
    let cpus = tick
        .cpus
        .iter()
        .filter(|cpu| !stops_while_busy.contains(cpu.cpu));
    let off: Vec<_> = cpus
        .filter_map(|cpu| Some((cpu.cpu, cpu.frequency.filter(off)?)))
        .map(|(cpu, measured)| {
            format!(
                "{:.2} ± {:.2} Hz on CPU {cpu}",
                measured.hz, measured.plus_minus
            )
        })
        .collect();
    if off.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        rule: "hz-not-as-built".to_owned(),
        title: "The tick is not as fast as the kernel was built for".to_owned(),
        configured: format!("CONFIG_HZ={hz:.0}"),
        effective: off.join(", "),
        measured: "intervals between ticks on CPUs that did not idle".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Cost::said(
            "ticks that a hypervisor or a long stretch without interrupts swallowed: \
                          late timers, and CPU time that is counted wrongly",
        ),
        remedy: "see what the CPUs did in the longest gaps; give the virtual machine a CPU of its \
                 own, or ask its host for fewer guests"
            .to_owned(),
    }]
}
