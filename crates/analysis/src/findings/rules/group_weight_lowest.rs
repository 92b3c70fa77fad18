//! Finds a cgroup that contains the watched program and has the lowest possible CPU weight.

use ticktax_model::advice::GroupContest;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::group::GroupWeight;

use super::super::Facts;

/// Minimum waiting time to report, as a share of the time that the program needed a CPU.
const MUCH: f64 = 0.01;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let (Some(settings), Some(waited)) = (facts.group_settings(), facts.waited(MUCH)) else {
        return Vec::new();
    };
    let lowest = settings.weights.iter().find_map(|level| {
        let file = level.file.as_deref()?;
        let default = default_of(level, file)?;
        Some((level, file, default))
    });
    let Some((level, file, default)) = lowest else {
        return Vec::new();
    };
    vec![Finding {
        rule: "group-weight-lowest".to_owned(),
        title: "The watched program's group has the lowest CPU weight".to_owned(),
        configured: format!("{file} is {} (default {default})", level.weight),
        effective: format!(
            "whenever another group or session wants the same CPU, {} hardly runs",
            level.path
        ),
        measured: "the weights along the path of the program's cgroup, and the time that its \
            threads waited for a CPU"
            .to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Some(Cost::new("the program waited for a CPU", Some(waited))),
        proposal: None,
        remedy: format!(
            "raise {file}; containers without a CPU request or CPU shares get this weight"
        ),
    }]
}

/// Returns the default weight if this weight is the lowest possible.
fn default_of(level: &GroupWeight, file: &str) -> Option<u64> {
    let (lowest, default) = if file.ends_with("cpu.shares") {
        (GroupContest::SHARES.0, GroupContest::DEFAULT_SHARES)
    } else {
        (GroupContest::WEIGHTS.0, GroupContest::DEFAULT_WEIGHT)
    };
    (level.weight <= lowest).then_some(default)
}
