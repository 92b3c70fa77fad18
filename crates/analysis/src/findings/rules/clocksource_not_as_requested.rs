//! Finds a clocksource other than the one requested with `clocksource=`.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let current = facts.header.machine.clocksource.as_deref();
    let (Some(asked), Some(current)) = (facts.parameter("clocksource"), current) else {
        return Vec::new();
    };
    if facts.clocksource_asked() == Some(current) {
        return Vec::new();
    }
    let mut available = facts
        .clocksources()
        .unwrap_or_default()
        .split_ascii_whitespace();
    let selectable = facts
        .clocksource_asked()
        .filter(|asked| available.any(|listed| listed == *asked));
    vec![Finding {
        rule: "clocksource-not-as-requested".to_owned(),
        title: "The clock source is not the requested one".to_owned(),
        configured: format!("clocksource={asked} on the kernel's command line"),
        effective: format!("clocksource {current}"),
        measured: "current_clocksource in /sys/devices/system/clocksource".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "reading a slow clock takes up to 100 times as long as reading a fast one",
        ),
        proposal: selectable.and_then(|asked| KnobProposal::new("clock.source", asked)),
        remedy:
            "choose one from available_clocksource in the same directory; the kernel log explains \
             why it rejected the requested one"
                .to_owned(),
    }]
}
