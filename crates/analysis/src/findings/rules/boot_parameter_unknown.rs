//! Finds boot parameters that the kernel doesn't know.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Parameters for programs, which the kernel is right to pass on. Names with a dot belong to
/// modules or programs, and the kernel doesn't report them as unknown.
const FOR_PROGRAMS: [&str; 22] = [
    "-b",
    "3",
    "5",
    "BOOT_IMAGE",
    "S",
    "auto",
    "boot",
    "cloud-init",
    "cryptdevice",
    "ds",
    "emergency",
    "fastboot",
    "init",
    "network-config",
    "nosplash",
    "persistent",
    "rescue",
    "resume",
    "s",
    "single",
    "splash",
    "text",
];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(log) = &facts.configured.log else {
        return Vec::new();
    };
    let unknown = log.unknown_parameters.iter().filter(|word| {
        let name = word.split('=').next().unwrap_or_default();
        !name.contains('.') && !FOR_PROGRAMS.contains(&name)
    });
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    if unknown.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        rule: "boot-parameter-unknown".to_owned(),
        title: "Unknown boot parameter".to_owned(),
        configured: format!("{} on the kernel's command line", unknown.join(" ")),
        effective: "nothing; the kernel passed it on to init".to_owned(),
        measured: "the kernel's boot messages (/dev/kmsg)".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Cost::unmeasured("the parameter does not have its intended effect"),
        proposal: None,
        remedy: "check the spelling, and whether this kernel was built with the option; leave the \
            parameter if a program reads it from /proc/cmdline"
            .to_owned(),
    }]
}
