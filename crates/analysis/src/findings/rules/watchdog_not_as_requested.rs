//! Finds a watchdog that is running despite `nmi_watchdog=0` or `nowatchdog` on the command line.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let file = |name: &str| facts.configured.file(&format!("proc/sys/kernel/{name}"));
    let off = |asked: &str, name: &str| (file(name) == Some("1")).then(|| asked.to_owned());
    let mut on_though_off = Vec::new();
    let mut knob = "kernel.watchdog";
    if facts.parameter("nmi_watchdog") == Some("0") {
        on_though_off.extend(off("nmi_watchdog=0", "nmi_watchdog"));
    }
    if facts.words().any(|word| word == "nowatchdog") {
        on_though_off.extend(off("nowatchdog", "watchdog"));
    } else {
        knob = "kernel.nmi_watchdog";
    }
    if on_though_off.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        rule: "watchdog-not-as-requested".to_owned(),
        title: "The watchdog is on, although disabled at boot".to_owned(),
        configured: format!("{} on the kernel's command line", on_though_off.join(" ")),
        effective: "on".to_owned(),
        measured: "/proc/sys/kernel/nmi_watchdog and /proc/sys/kernel/watchdog".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured("a timer on each CPU every 4 s, and a performance counter"),
        proposal: KnobProposal::new(knob, 0),
        remedy: "find what sets kernel.nmi_watchdog or kernel.watchdog after boot".to_owned(),
    }]
}
