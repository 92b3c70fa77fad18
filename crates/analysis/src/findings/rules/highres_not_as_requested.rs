//! Finds high-resolution timers that are on or off contrary to the configuration.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let timers = facts.configured.timers.as_ref();
    let Some(active) = timers.and_then(|timers| timers.high_resolution) else {
        return Vec::new();
    };
    let off = matches!(facts.parameter("highres"), Some("off" | "0" | "n"));
    let built = facts.configured.built("HIGH_RES_TIMERS");
    let (configured, effective, cost) = match (active, off, built) {
        (true, true, _) => ("highres=off on the kernel's command line", "active", "none"),
        (false, false, Some(true)) => (
            "CONFIG_HIGH_RES_TIMERS=y, not disabled on the command line",
            "inactive on at least one CPU",
            "every sleep ends on a tick, up to one tick late",
        ),
        _ => return Vec::new(),
    };
    vec![Finding {
        rule: "highres-not-as-requested".to_owned(),
        title: "High-resolution timers are not as configured".to_owned(),
        configured: configured.to_owned(),
        effective: effective.to_owned(),
        measured: "hres_active in /proc/timer_list".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(cost),
        proposal: None,
        remedy: "check the kernel log for a clock event device without one-shot mode or an \
            unsuitable clock source, and the parameter's spelling"
            .to_owned(),
    }]
}
