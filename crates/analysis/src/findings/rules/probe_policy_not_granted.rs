//! A probe that runs under another policy than it asked for.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// What the coverage of a recording calls it.
const WHAT: &str = "the probe as asked for";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let refused = facts
        .header
        .coverage
        .limitations
        .iter()
        .filter(|limitations| limitations.what == WHAT);
    let refused: Vec<&str> = refused.map(|limitations| &*limitations.why).collect();
    let Some(first) = refused.first() else {
        return Vec::new();
    };
    let more = match refused.len() - 1 {
        0 => String::new(),
        more => format!(", and likewise on {more} more"),
    };
    vec![Finding {
        rule: "probe-policy-not-granted".to_owned(),
        title: "A program of this user does not get the priority that it asks for".to_owned(),
        configured: "the scheduling policy of --probe-policy".to_owned(),
        effective: format!("{first}{more}"),
        measured: "the kernel's answer to sched_setscheduler(2)".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::said("programs of the same user that ask likewise wait behind others, too"),
        remedy: "give CAP_SYS_NICE, or raise RLIMIT_RTPRIO (limits.conf, LimitRTPRIO= of the \
                 service); in a container, let its cgroup have real-time time"
            .to_owned(),
    }]
}
