//! Finds programs that were swapped out while written data sat in memory waiting for an NFS server.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Minimum number of bytes that must have been sent, and that must have been swapped out.
const MIN_BYTES: u64 = 1 << 20;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    found(facts).into_iter().collect()
}

fn found(facts: &Facts<'_>) -> Option<Finding> {
    let (before, after) = (
        facts.header.before.writeback?,
        facts.header.after.writeback?,
    );
    let sent = after
        .nfs_sent_bytes?
        .saturating_sub(before.nfs_sent_bytes.unwrap_or(0));
    let swapped = after
        .swapped_out_bytes
        .saturating_sub(before.swapped_out_bytes);
    if sent < MIN_BYTES || swapped < MIN_BYTES {
        return None;
    }
    let mount = facts
        .mounts()
        .find(|mount| mount.is_nfs() && !mount.has("ro"))?;
    let file = |name: &str| facts.configured.file(&format!("proc/sys/vm/{name}"));
    // One of the two settings is 0, and the other one applies.
    let limit = match (file("dirty_bytes"), file("dirty_ratio")) {
        (None | Some("0"), None) => "the kernel's default limit on dirty data".to_owned(),
        (None | Some("0"), Some(share)) => format!("vm.dirty_ratio = {share} % of memory"),
        (Some(bytes), _) => format!("vm.dirty_bytes = {bytes}"),
    };
    let waiting = after.dirty_bytes.saturating_add(after.writing_bytes);
    Some(Finding {
        rule: "nfs-writeback-swaps".to_owned(),
        title: format!(
            "Programs were swapped out while {} was written to",
            mount.place
        ),
        configured: limit,
        effective: format!(
            "{} MiB were sent to NFS servers and {} MiB of programs' memory to swap; at the end, \
             {} MiB were still unwritten",
            mib(sent),
            mib(swapped),
            mib(waiting)
        ),
        measured: "/proc/vmstat and /proc/self/mountstats, before and after".to_owned(),
        // The memory may have been needed for something else.
        confidence: Confidence::Possible,
        severity: Severity::Warning,
        cost: Cost::unmeasured("programs wait for their memory to return from swap"),
        proposal: None,
        remedy: format!(
            "lower vm.dirty_bytes, or the mount's share: find its number N:M with `mountpoint -d \
             {}`, and write a percentage to /sys/class/bdi/N:M/max_ratio",
            mount.place
        ),
    })
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
