//! A file system that does not have the disk write its cache: what fsync promised is lost with the power.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// How file systems say so.
const OFF: [&str; 3] = ["nobarrier", "barrier=0", "barrier=none"];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let lines = facts.configured.fstab.iter();
    let off = lines.filter_map(|line| {
        let mounted = line.mounted.as_ref()?;
        let mut options = mounted.options.iter();
        let off = options.find(|option| OFF.contains(&&***option))?;
        Some((line, off))
    });
    off.map(|(line, off)| Finding {
        rule: "fsync-without-barrier".to_owned(),
        title: format!("an fsync on {} does not reach the disk's medium", line.place),
        configured: format!("/etc/fstab: {} with {}", line.place, line.options.join(",")),
        effective: format!("mounted {off}: the disk keeps what it was sent in its cache"),
        measured: "/proc/mounts, and /proc/fs for what that leaves out".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::said(
            "what fsync promised is lost with the power, unless the disk's cache has a battery; and a benchmark \
             with it is faster than the disk",
        ),
        remedy: format!("mount -o remount,barrier=1 {}, and take the option out", line.place),
    })
    .collect()
}
