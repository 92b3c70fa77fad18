//! Finds a watched program that was still frozen when the recording ended.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let victim = facts.header.victim.as_ref();
    let Some(folder) = victim.and_then(|victim| victim.frozen_by.as_deref()) else {
        return Vec::new();
    };
    let (file, frozen, thawed) = if is_version_1(folder) {
        ("freezer.state", "FROZEN", "THAWED")
    } else {
        ("cgroup.freeze", "1", "0")
    };
    vec![Finding {
        rule: "program-frozen".to_owned(),
        title: "The watched program is frozen".to_owned(),
        configured: format!("{folder}/{file} is {frozen}"),
        effective: "its threads do not run until the cgroup is thawed".to_owned(),
        measured: format!("{folder}, at the end of the recording"),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Cost::unmeasured("the program makes no progress"),
        proposal: None,
        remedy: format!(
            "thaw it, unless a checkpoint or a backup is in progress: echo {thawed} > {}",
            quoted(&format!("{folder}/{file}"))
        ),
    }]
}

/// Returns whether a freezer is part of a version 1 hierarchy, where each controller is mounted in
/// a separate directory.
fn is_version_1(folder: &str) -> bool {
    let path = folder.strip_prefix("/sys/fs/cgroup/").unwrap_or_default();
    let mount = path.split('/').next().unwrap_or_default();
    mount.split(',').any(|controller| controller == "freezer")
}

/// Quotes a path for the shell if necessary.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:".contains(c);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}
