//! Finds `isolcpus=` on the command line of a kernel that has no isolated CPUs.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

const ISOLATED: &str = "sys/devices/system/cpu/isolated";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let (Some(asked), Some(_)) = (facts.parameter("isolcpus"), facts.configured.file(ISOLATED))
    else {
        return Vec::new();
    };
    // Flags precede the CPU list. They affect the scheduler's domains only if `domain` is among
    // them.
    let words: Vec<&str> = asked.split(',').collect();
    let is_flag =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic()) && *word != "all";
    let flags: Vec<&str> = words.into_iter().take_while(is_flag).collect();
    let concerns_domains = flags.is_empty() || flags.contains(&"domain");
    if !concerns_domains || facts.cpus_in(ISOLATED).is_some() {
        return Vec::new();
    }
    vec![Finding {
        rule: "isolcpus-without-effect".to_owned(),
        title: "No CPU is isolated".to_owned(),
        configured: format!("isolcpus={asked} on the kernel's command line"),
        effective: "the scheduler places any program on any CPU".to_owned(),
        measured: format!("/{ISOLATED} is empty"),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Cost::unmeasured("programs wait behind others on CPUs meant for them alone"),
        proposal: None,
        remedy: "check that the listed CPUs exist, and that the kernel was built with \
            CONFIG_CPU_ISOLATION"
            .to_owned(),
    }]
}
