//! Finds a cgroup that contains the watched program and refuses real-time scheduling policies.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Minimum waiting time to report, as a share of the time that the program needed a CPU.
const MUCH: f64 = 0.01;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let (Some(settings), Some(waited)) = (facts.group_settings(), facts.waited(MUCH)) else {
        return Vec::new();
    };
    let Some(budget) = settings
        .real_time
        .as_ref()
        .filter(|budget| budget.quota.is_zero())
    else {
        return Vec::new();
    };
    vec![Finding {
        rule: "real-time-refused-in-group".to_owned(),
        title: "The watched program cannot get a real-time priority in its group".to_owned(),
        configured: format!("cpu.rt_runtime_us of {} is 0", budget.path),
        effective: "sched_setscheduler and chrt fail with EPERM, even for root".to_owned(),
        measured: "cpu.rt_runtime_us along the path of the program's cgroup".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Some(Cost::new(
            "the program waited for a CPU behind others",
            Some(waited),
        )),
        proposal: None,
        remedy: "if the program needs a real-time priority, write a runtime to cpu.rt_runtime_us \
            that also fits into the runtime of each parent cgroup, or move the program to the root \
            cgroup"
            .to_owned(),
    }]
}
