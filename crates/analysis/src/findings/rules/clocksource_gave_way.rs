//! Finds a slow clocksource that the kernel has fallen back to.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Clocksources that are devices. Reading one takes 1 µs or more, and much longer in a virtual
/// machine.
const SLOW: [&str; 5] = ["acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(current) = facts.header.machine.clocksource.as_deref() else {
        return Vec::new();
    };
    if !SLOW.contains(&current) || facts.clocksource_asked() == Some(current) {
        return Vec::new();
    }
    let available = facts.clocksources().unwrap_or("unknown");
    let messages = facts.configured.log.iter().flat_map(|log| &log.clock);
    let reason = messages
        .last()
        .map(|message| format!("; the kernel said: {message}"));
    vec![Finding {
        rule: "clocksource-gave-way".to_owned(),
        title: "The clock source is a slow device".to_owned(),
        configured: format!("nothing; available clock sources: {available}"),
        effective: format!("{current}{}", reason.unwrap_or_default()),
        measured: "current_clocksource in /sys/devices/system/clocksource".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Cost::unmeasured("each clock reading takes a system call and at least 1 µs"),
        proposal: None,
        remedy: "find out why the kernel rejected the TSC (firmware, unsynchronized sockets, \
            suspend); if you know it is reliable, boot with tsc=reliable"
            .to_owned(),
    }]
}
