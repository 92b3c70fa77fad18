//! Finds real-time threads that the kernel may throttle during part of each period.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let number = |name: &str| -> Option<i64> {
        facts
            .configured
            .file(&format!("proc/sys/kernel/{name}"))?
            .parse()
            .ok()
    };
    let granted = facts
        .header
        .probes
        .iter()
        .find(|probe| probe.policy.granted.real_time().is_some());
    let (Some(probe), Some(runtime), Some(period)) = (
        granted,
        number("sched_rt_runtime_us"),
        number("sched_rt_period_us"),
    ) else {
        return Vec::new();
    };
    if runtime < 0 || runtime >= period {
        return Vec::new();
    }
    vec![Finding {
        rule: "real-time-throttled".to_owned(),
        title: "Real-time threads cannot use all the time of a CPU".to_owned(),
        configured: format!(
            "a probe under {}, above all other programs",
            probe.policy.granted
        ),
        effective: format!(
            "at most {runtime} of every {period} µs, if other threads want to run or real-time \
             groups are throttled"
        ),
        measured: "/proc/sys/kernel/sched_rt_runtime_us and sched_rt_period_us; the probe's gaps \
            show the actual effect"
            .to_owned(),
        confidence: Confidence::Possible,
        severity: Severity::Note,
        cost: Cost::unmeasured(format!("gaps of up to {} ms", (period - runtime) / 1000)),
        proposal: KnobProposal::new("kernel.sched_rt_runtime_us", -1),
        remedy:
            "if the real-time threads are known to sleep, set kernel.sched_rt_runtime_us = -1 or, \
             since Linux 6.12, change the fair server's runtime in debugfs"
                .to_owned(),
    }]
}
