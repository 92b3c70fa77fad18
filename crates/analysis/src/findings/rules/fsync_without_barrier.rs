//! Finds a file system that does not flush the disk's cache. A power failure can then lose data
//! even after fsync has returned.

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
        title: format!("fsync on {} does not reach the disk's medium", mount.place),
        configured: mount.configured(),
        effective: format!("mounted with {off}: the disk keeps written data in its cache"),
        measured: "/proc/mounts, and /proc/fs for options missing there".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "a power failure loses data that fsync reported as written, unless the cache has a \
             battery; benchmarks show the cache's speed, not the disk's",
        ),
        proposal: None,
        remedy: format!(
            "run `mount -o remount,{} {}`, and remove the option from its configuration",
            if off.starts_with("fsync_mode") {
                "fsync_mode=posix"
            } else {
                "barrier"
            },
            mount.place
        ),
    })
    .collect()
}
