//! Finds kernel helper threads (`io_uring`) of the watched program that use up its CPU quota.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Prefix of the names of the threads that the kernel creates for `io_uring`.
const HELPER: &str = "iou-";
/// Helpers are reported if they used at least this share of the busiest threads' CPU time.
const MUCH: f64 = 0.1;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let throttling = facts.victim.and_then(|victim| victim.throttling.as_ref());
    let throttling = throttling.filter(|quota| quota.throttled > 0);
    let (Some(throttling), Some(threads)) = (throttling, facts.threads) else {
        return Vec::new();
    };
    let all: Nanos = threads.busiest.iter().map(|thread| thread.time).sum();
    let helpers = threads.busiest.iter();
    let helpers = helpers.filter(|thread| thread.name.starts_with(HELPER));
    let used: Nanos = helpers.clone().map(|thread| thread.time).sum();
    let Some(most) = helpers.max_by_key(|thread| thread.time) else {
        return Vec::new();
    };
    if used.share_of(all) < MUCH {
        return Vec::new();
    }
    let remedy = if most.name.starts_with("iou-sqp") {
        "set a shorter sq_thread_idle for its io_uring, or don't use SQPOLL"
    } else {
        "limit the helpers (IORING_REGISTER_IOWQ_MAX_WORKERS), or issue fewer blocking requests"
    };
    vec![Finding {
        rule: "own-helpers-use-quota".to_owned(),
        title: "The watched program's io_uring threads use its CPU quota".to_owned(),
        configured: format!("a CPU quota in {}", throttling.cgroup),
        effective: format!(
            "its helper threads ran for {used} in total, {} the longest; the quota throttled the \
             program in {} of {} periods",
            most.name, throttling.throttled, throttling.periods
        ),
        measured: "CPU time of each thread, and cpu.stat".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Some(Cost::new("CPU time of the helpers", Some(used))),
        proposal: None,
        remedy: remedy.to_owned(),
    }]
}
