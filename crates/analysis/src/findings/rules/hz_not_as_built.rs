//! Finds a tick rate that differs from the one the kernel was built with.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

use ticktax_model::tick::Frequency;

/// Largest relative deviation of the tick rate that is not reported. Clocks differ by less.
const TOLERANCE: f64 = 0.02;
/// Minimum number of tick intervals measured. At 250 Hz, this takes one second.
const MIN: u64 = 250;

/// Text of a finding, which depends on the sign of the deviation and on whether the kernel is a
/// guest.
struct Words {
    title: &'static str,
    cost: &'static str,
    remedy: &'static str,
}

const TOO_SLOW: &str = "The tick is slower than the kernel's configuration";
const SLOWER: Words = Words {
    title: TOO_SLOW,
    cost: "late timers and wrong CPU times, because ticks were lost in firmware or \
           while interrupts were disabled",
    remedy: "check what the CPUs did in the longest gaps",
};
const SLOWER_IN_A_GUEST: Words = Words {
    title: TOO_SLOW,
    cost: "late timers and wrong CPU times, because ticks were lost in the \
           hypervisor or while interrupts were disabled",
    remedy: "check what the CPUs did in the longest gaps; give the virtual machine dedicated CPUs, \
        or run fewer guests on its host",
};
const FASTER: Words = Words {
    title: "The tick is faster than the kernel's configuration",
    cost: "more ticks than requested, and wrong CPU times",
    remedy: "check in the kernel log how the kernel calibrated its clocks",
};
const BOTH: Words = Words {
    title: "The tick differs from the kernel's configuration",
    cost: "wrong CPU times",
    remedy: "check what the CPUs did in the longest gaps, and in the kernel log how the kernel \
        calibrated its clocks",
};

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some((tick, hz)) = facts
        .tick
        .and_then(|tick| Some((tick, tick.hz_configured?)))
    else {
        return Vec::new();
    };
    // If a tick divider was requested, the divider's own rule reports the deviation.
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
        .collect();
    if off.is_empty() {
        return Vec::new();
    }
    let slower = off.iter().filter(|(_, measured)| measured.hz < hz).count();
    let words = if slower == 0 {
        FASTER
    } else if slower < off.len() {
        BOTH
    } else if facts.header.machine.hypervisor.is_some() {
        SLOWER_IN_A_GUEST
    } else {
        SLOWER
    };
    let effective: Vec<String> = off
        .into_iter()
        .map(|(cpu, measured)| {
            format!(
                "{:.2} ± {:.2} Hz on CPU {cpu}",
                measured.hz, measured.plus_minus
            )
        })
        .collect();
    vec![Finding {
        rule: "hz-not-as-built".to_owned(),
        title: words.title.to_owned(),
        configured: format!("CONFIG_HZ={hz:.0}"),
        effective: effective.join(", "),
        measured: "intervals between ticks on CPUs that were not idle".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Cost::unmeasured(words.cost),
        proposal: None,
        remedy: words.remedy.to_owned(),
    }]
}
