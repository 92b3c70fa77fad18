//! CPUs that may not run as fast as they can.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let capped = facts.configured.frequency.iter().filter_map(|policy| {
        let (max, hardware) = (policy.max_khz?, policy.hardware_max_khz?);
        (max < hardware).then_some((policy, max, hardware))
    });
    let capped: Vec<_> = capped.collect();
    let Some(&(first, max, hardware)) = capped.first() else {
        return Vec::new();
    };
    let cpus: Vec<&str> = capped.iter().map(|(policy, ..)| &*policy.cpus).collect();
    vec![Finding {
        rule: "cpu-frequency-capped".to_owned(),
        title: "CPUs are kept below their highest frequency".to_owned(),
        configured: format!(
            "scaling_max_freq of {} MHz, governor {}",
            max / 1000,
            first.governor
        ),
        effective: format!(
            "at most {} of {} MHz on CPUs {}",
            max / 1000,
            hardware / 1000,
            cpus.join(" ")
        ),
        measured: "/sys/devices/system/cpu/cpufreq/policy*/".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::said(format!(
            "up to {:.0} % of the speed",
            100.0 * (1.0 - max as f64 / hardware as f64)
        )),
        remedy: "write cpuinfo_max_freq to scaling_max_freq, unless heat or power is what it is \
                 meant to limit"
            .to_owned(),
    }]
}
