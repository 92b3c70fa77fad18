//! Finds a program that keeps all CPUs out of deep sleep.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// A limit this large or larger does not keep a CPU out of deep sleep. The kernel's default is 2000
/// s.
const NO_LIMIT_US: u32 = 1_000;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let latency = facts.configured.wake_latency.as_ref();
    let Some(latency) = latency.filter(|latency| latency.micros < NO_LIMIT_US) else {
        return Vec::new();
    };
    let holders = if latency.holders.is_empty() {
        "the kernel, or a program that is not visible from here".to_owned()
    } else {
        latency.holders.join(", ")
    };
    vec![Finding {
        rule: "cpu-wake-latency-held".to_owned(),
        title: "CPUs are kept out of deep idle states".to_owned(),
        configured: format!("/dev/cpu_dma_latency held open by {holders}"),
        effective: format!(
            "wake-up latency limited to {} µs on every CPU",
            latency.micros
        ),
        measured: "/dev/cpu_dma_latency for the limit, /proc/*/fd for its holders".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Cost::unmeasured("power, and therefore a lower turbo frequency on busy CPUs"),
        proposal: None,
        remedy: "keep the limit if wake-ups must be fast; otherwise stop the program that holds \
            the file open"
            .to_owned(),
    }]
}
