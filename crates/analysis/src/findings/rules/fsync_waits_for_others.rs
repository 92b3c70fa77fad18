//! Finds a file system on which fsync waits until other programs' data are written.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;
use super::super::facts::Mount;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let all = facts.mounts().filter(|mount| !mount.has("ro"));
    all.filter_map(|mount| Some(finding(&mount, reason(&mount)?)))
        .collect()
}

/// Returns why fsync on this mount writes the whole file system, or `None` if it does not.
fn reason(mount: &Mount<'_>) -> Option<&'static str> {
    // The journal's transaction covers all files and waits for their data. If blocks are allocated
    // at write time, that means all data written since the last commit.
    match &*mount.mounted.kind {
        "ext3" | "ext4" if mount.has("data=journal") => {
            Some("data=journal: fsync waits for a transaction with the data of all files")
        }
        "ext3" | "ext4" if mount.has("nodelalloc") && mount.has("data=ordered") => Some(
            "data=ordered without delayed allocation: fsync waits for all data that programs wrote \
             since the last commit",
        ),
        "btrfs" if mount.has("notreelog") => Some("notreelog: fsync commits the whole file system"),
        _ => None,
    }
}

fn finding(mount: &Mount<'_>, why: &str) -> Finding {
    let remedy = match &*mount.mounted.kind {
        "btrfs" => format!("mount -o remount,treelog {}", mount.place),
        "ext3" => format!(
            "mount {} as ext4, which delays allocation, or with data=writeback if old data in \
             files after a crash is acceptable",
            mount.place
        ),
        _ => format!(
            "mount {} with delalloc and data=ordered, the defaults of ext4",
            mount.place
        ),
    };
    Finding {
        rule: "fsync-waits-for-others".to_owned(),
        title: format!("fsync on {} writes more than its file", mount.place),
        configured: mount.configured(),
        effective: why.to_owned(),
        measured: "/proc/mounts, and /proc/fs for options missing there".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Cost::unmeasured(
            "a program that syncs often waits for programs that write a lot, and fsync benchmarks \
             include other programs' writes",
        ),
        proposal: None,
        remedy,
    }
}
