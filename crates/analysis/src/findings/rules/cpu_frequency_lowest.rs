//! Finds CPUs that their governor keeps at the lowest frequency.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    // With these drivers, the hardware chooses the frequency, and `powersave` is only a hint.
    let chooses =
        |driver: &str| driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    let lowest = facts.configured.frequency.iter().filter(|policy| {
        policy.governor == "powersave" && !policy.driver.is_empty() && !chooses(&policy.driver)
    });
    let lowest: Vec<_> = lowest.collect();
    if lowest.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        rule: "cpu-frequency-lowest".to_owned(),
        title: "CPUs run at their lowest frequency".to_owned(),
        configured: "governor powersave".to_owned(),
        effective: format!(
            "the lowest frequency at any load, on {}",
            Facts::frequency_cpus(lowest)
        ),
        measured:
            "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor; with this driver, the \
            governor alone sets the frequency"
                .to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Cost::unmeasured(
            "all work slows down by the ratio of the highest to the lowest frequency",
        ),
        proposal: KnobProposal::new("cpu.governor", "performance"),
        remedy: "write schedutil or performance to scaling_governor".to_owned(),
    }]
}
