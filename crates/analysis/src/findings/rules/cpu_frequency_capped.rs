//! Finds CPUs whose frequency limit is below what the hardware supports.

use std::collections::BTreeMap;

use ticktax_model::configured::FrequencyPolicy;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    // CPUs in one machine can have different maximum frequencies.
    let mut alike: BTreeMap<_, Vec<&FrequencyPolicy>> = BTreeMap::new();
    for policy in &facts.configured.frequency {
        if let (Some(max), Some(hardware)) = (policy.max_khz, policy.hardware_max_khz)
            && max < hardware
        {
            let cap = (max, hardware, &*policy.governor);
            alike.entry(cap).or_default().push(policy);
        }
    }
    // A proposal applies to all CPUs, so make none if the limits differ.
    let is_one = alike.len() == 1;
    let mut findings: Vec<Finding> = alike
        .into_iter()
        .map(|((max, hardware, governor), policies)| finding(max, hardware, governor, policies))
        .collect();
    for finding in findings.iter_mut().filter(|_| !is_one) {
        finding.proposal = None;
    }
    findings
}

/// Returns the finding for CPUs that are capped at `max` kHz even though the hardware supports
/// `hardware` kHz.
fn finding(max: u64, hardware: u64, governor: &str, policies: Vec<&FrequencyPolicy>) -> Finding {
    Finding {
        rule: "cpu-frequency-capped".to_owned(),
        title: "CPU frequency is capped below the maximum".to_owned(),
        configured: format!("scaling_max_freq {} MHz, governor {governor}", max / 1000),
        effective: format!(
            "at most {} of {} MHz on {}",
            max / 1000,
            hardware / 1000,
            Facts::frequency_cpus(policies)
        ),
        measured: "/sys/devices/system/cpu/cpufreq/policy*/".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(format!(
            "up to {:.0} % of the speed",
            100.0 * (1.0 - max as f64 / hardware as f64)
        )),
        proposal: KnobProposal::new("cpu.max_freq", hardware),
        remedy:
            "write cpuinfo_max_freq to scaling_max_freq, unless the cap is meant to limit heat \
            or power"
                .to_owned(),
    }
}
