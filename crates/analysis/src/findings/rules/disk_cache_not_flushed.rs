//! Finds a disk whose write cache the kernel never flushes because it takes the cache to be
//! write-through.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let caches = facts.configured.write_caches.iter();
    let unflushed = caches.filter(|cache| {
        cache.kernel == "write through" && cache.cache_type.starts_with("write back")
    });
    unflushed
        .map(|cache| Finding {
            rule: "disk-cache-not-flushed".to_owned(),
            title: format!("fsync on {} reaches only the disk's cache", cache.disk),
            configured: format!(
                "/sys/block/{}/queue/write_cache: {}",
                cache.disk, cache.kernel
            ),
            effective: format!(
                "the disk's cache is {}, but the kernel does not flush it",
                cache.cache_type
            ),
            measured: "cache_type, as the disk reports it".to_owned(),
            confidence: Confidence::Certain,
            severity: Severity::Warning,
            cost: Cost::unmeasured(
                "a power failure loses data that fsync reported as written, unless the cache has a \
                 battery; benchmarks show the cache's speed, not the disk's",
            ),
            proposal: None,
            remedy: format!(
                "write \"write back\" to /sys/block/{}/queue/write_cache",
                cache.disk
            ),
        })
        .collect()
}
