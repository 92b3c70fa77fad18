//! Finds a `divider=` on the command line that has no effect. Only one distribution's kernels ever
//! supported it, from 2007 to 2020.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let asked: Option<f64> = facts
        .parameter("divider")
        .and_then(|value| value.parse().ok());
    let hz = facts.header.machine.hz_configured.map(f64::from);
    let (Some(asked), Some(hz)) = (asked.filter(|divider| *divider > 1.0), hz) else {
        return Vec::new();
    };
    let frequencies = facts
        .tick
        .iter()
        .flat_map(|tick| &tick.cpus)
        .filter_map(|cpu| cpu.frequency);
    let measured = frequencies.map(|frequency| frequency.hz).reduce(f64::max);
    let unknown = facts.configured.log.as_ref().is_some_and(|log| {
        log.unknown_parameters
            .iter()
            .any(|word| word.starts_with("divider="))
    });
    let (effective, how, confidence) = match measured {
        Some(measured) if (measured - hz / asked).abs() <= 0.1 * hz / asked => return Vec::new(),
        Some(measured) => (
            format!("{measured:.2} Hz"),
            "intervals between ticks on CPUs that were not idle",
            Confidence::Certain,
        ),
        None if unknown => (
            "nothing; the kernel does not know the parameter".to_owned(),
            "the kernel's boot messages (/dev/kmsg)",
            Confidence::Likely,
        ),
        None => return Vec::new(),
    };
    vec![Finding {
        rule: "tick-divider-without-effect".to_owned(),
        title: "The tick divider has no effect".to_owned(),
        configured: format!(
            "divider={asked:.0} on the kernel's command line: {:.0} Hz",
            hz / asked
        ),
        effective,
        measured: how.to_owned(),
        confidence,
        severity: Severity::Serious,
        cost: Some(Cost::new(
            "the ticks that should have been skipped",
            facts
                .tick
                .and_then(|tick| tick.cost.as_ref())
                .map(|cost| cost.time.times(1.0 - 1.0 / asked)),
        )),
        proposal: None,
        remedy: "use a kernel built for fewer ticks (CONFIG_HZ), or one that stops the tick of \
            idle CPUs (CONFIG_NO_HZ_IDLE)"
            .to_owned(),
    }]
}
