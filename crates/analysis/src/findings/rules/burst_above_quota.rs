//! Finds a quota that throttles the watched program even though the program's average fits it.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(victim) = facts.victim else {
        return Vec::new();
    };
    let (Some(throttling), Some(burst)) = (&victim.throttling, victim.needed_burst) else {
        return Vec::new();
    };
    let (Some(quota), Some(period)) = (throttling.quota, throttling.period) else {
        return Vec::new();
    };
    let file = if is_version_1(&throttling.cgroup) {
        "cpu.cfs_burst_us"
    } else {
        "cpu.max.burst"
    };
    let micros = burst.0 / 1_000;
    vec![Finding {
        rule: "burst-above-quota".to_owned(),
        title: "A CPU quota throttles short bursts, although the average fits the quota".to_owned(),
        configured: format!("{quota} of CPU time per {period} in {}", throttling.cgroup),
        effective: format!(
            "throttled in {} of {} periods, because unused quota cannot be saved up beyond {}",
            throttling.throttled,
            throttling.periods,
            throttling.burst.unwrap_or_default()
        ),
        measured: "cpu.stat, and the times at which the program's threads ran".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Some(Cost::new("throttled", Some(throttling.time))),
        proposal: None,
        remedy: format!("write {micros} to {file} in this cgroup, or lengthen the period"),
    }]
}

/// Returns whether a cgroup is part of a version 1 hierarchy, where each controller is mounted in a
/// separate directory.
fn is_version_1(folder: &str) -> bool {
    let path = folder.strip_prefix("/sys/fs/cgroup/").unwrap_or_default();
    let mount = path.split('/').next().unwrap_or_default();
    mount.split(',').any(|controller| controller == "cpu")
}
