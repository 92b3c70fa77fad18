//! Finds a file system that does not flush the disk's cache, so that a power failure loses what
//! fsync promised.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Mount options that disable flushing.
const OFF: [&str; 4] = [
    "nobarrier",
    "barrier=0",
    "barrier=none",
    "fsync_mode=nobarrier",
];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let off = facts.mounts().filter_map(|mount| {
        let off = mount.first_of(&OFF)?;
        Some((mount, off))
    });
    off.map(|(mount, off)| Finding {
        rule: "fsync-without-barrier".to_owned(),
        title: format!("an fsync on {} does not reach the disk's medium", mount.place),
        configured: mount.configured(),
        effective: format!("mounted {off}: the disk keeps what it was sent in its cache"),
        measured: "/proc/mounts, and /proc/fs for what that leaves out".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::said(
            "what fsync promised is lost with the power, unless the disk's cache has a battery; and a benchmark \
             with it is faster than the disk",
        ),
        proposal: None,
        remedy: format!(
            "mount -o remount,{} {}, and take the option out",
            if off.starts_with("fsync_mode") { "fsync_mode=posix" } else { "barrier" },
            mount.place
        ),
    })
    .collect()
}
