//! Finds a probe that runs under a different policy from the one requested.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::limitation::Limitation;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let limitations = facts.header.coverage.limitations.iter();
    let refused: Vec<String> = limitations
        .filter_map(|limitation| match limitation {
            Limitation::ProbePolicyRefused { cpu, policy } => Some(format!("CPU {cpu}: {policy}")),
            _ => None,
        })
        .collect();
    let Some(first) = refused.first() else {
        return Vec::new();
    };
    let more = match refused.len() - 1 {
        0 => String::new(),
        more => format!(", and the same on {more} more"),
    };
    vec![Finding {
        rule: "probe-policy-not-granted".to_owned(),
        title: "Programs of this user do not get the priority they request".to_owned(),
        configured: "the scheduling policy of --probe-policy".to_owned(),
        effective: format!("{first}{more}"),
        measured: "the kernel's answer to sched_setscheduler(2)".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "programs of this user that request this priority wait behind others",
        ),
        proposal: None,
        remedy: "grant CAP_SYS_NICE, or raise RLIMIT_RTPRIO (limits.conf, or the service's \
            LimitRTPRIO=); in a container, also give its cgroup real-time bandwidth"
            .to_owned(),
    }]
}
