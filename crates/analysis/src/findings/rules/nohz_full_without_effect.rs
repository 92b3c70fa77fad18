//! `nohz_full=` on the command line, and no CPU whose tick may stop while it is busy.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

const NOHZ_FULL: &str = "sys/devices/system/cpu/nohz_full";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(asked) = facts.parameter("nohz_full") else {
        return Vec::new();
    };
    let built = facts.configured.built("NO_HZ_FULL");
    let listed = facts.configured.file(NOHZ_FULL);
    // Without the option there is no such file; a machine without /sys proves nothing.
    let why = match (built, listed) {
        (Some(false), _) => "the kernel was built without CONFIG_NO_HZ_FULL",
        (_, Some(_)) if facts.cpus_in(NOHZ_FULL).is_none() => "no CPU is in the list",
        _ => return Vec::new(),
    };
    vec![Finding {
        rule: "nohz-full-without-effect".to_owned(),
        title: "The tick goes on on busy CPUs".to_owned(),
        configured: format!("nohz_full={asked} on the kernel's command line"),
        effective: format!("every busy CPU has its tick: {why}"),
        measured: format!("/{NOHZ_FULL}, and the kernel's build configuration"),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Some(Cost {
            what: "the tick's bill above, on CPUs meant to be without".to_owned(),
            time: facts
                .tick
                .and_then(|tick| tick.cost.as_ref())
                .map(|cost| cost.time),
        }),
        remedy: "use a kernel with CONFIG_NO_HZ_FULL=y; leave at least the CPU that boots out of \
                 the list"
            .to_owned(),
    }]
}
