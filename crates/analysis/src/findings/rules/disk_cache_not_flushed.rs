//! A disk that caches writes, and that the kernel takes for one that does not.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let caches = facts.configured.write_caches.iter();
    let unflushed =
        caches.filter(|it| it.kernel == "write through" && it.own.starts_with("write back"));
    unflushed
        .map(|it| Finding {
            rule: "disk-cache-not-flushed".to_owned(),
            title: format!("an fsync on {} ends in the disk's cache", it.disk),
            configured: format!("/sys/block/{}/queue/write_cache: {}", it.disk, it.kernel),
            effective: format!(
                "the disk's cache is {}, and the kernel sends it no flush",
                it.own
            ),
            measured: "cache_type, as the disk told the kernel".to_owned(),
            confidence: Confidence::Certain,
            severity: Severity::Warning,
            cost: Cost::said(
                "what fsync promised is lost with the power, unless the disk's cache has a battery; and a \
                 benchmark with it is faster than the disk",
            ),
            proposal: None,
            remedy: format!("write \"write back\" to /sys/block/{}/queue/write_cache", it.disk),
        })
        .collect()
}
