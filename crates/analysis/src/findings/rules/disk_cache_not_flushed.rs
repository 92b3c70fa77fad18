//! Finds a disk with a write cache that the kernel takes for write-through and therefore never
//! flushes.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let caches = facts.configured.write_caches.iter();
    let unflushed = caches
        .filter(|cache| cache.kernel == "write through" && cache.own.starts_with("write back"));
    unflushed
        .map(|cache| Finding {
            rule: "disk-cache-not-flushed".to_owned(),
            title: format!("an fsync on {} ends in the disk's cache", cache.disk),
            configured: format!("/sys/block/{}/queue/write_cache: {}", cache.disk, cache.kernel),
            effective: format!(
                "the disk's cache is {}, and the kernel sends it no flush",
                cache.own
            ),
            measured: "cache_type, as the disk told the kernel".to_owned(),
            confidence: Confidence::Certain,
            severity: Severity::Warning,
            cost: Cost::said(
                "what fsync promised is lost with the power, unless the disk's cache has a battery; and a \
                 benchmark with it is faster than the disk",
            ),
            proposal: None,
            remedy: format!("write \"write back\" to /sys/block/{}/queue/write_cache", cache.disk),
        })
        .collect()
}
