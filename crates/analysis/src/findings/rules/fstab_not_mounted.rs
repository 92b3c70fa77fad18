//! Finds a line in `/etc/fstab` whose file system is not mounted.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    /// Options that allow a line's file system to remain unmounted.
    const EXCUSES: [&str; 4] = ["noauto", "nofail", "x-systemd.automount", "x-mount.nofail"];
    let missing = facts.configured.fstab.iter().filter(|line| {
        let excused = line
            .options
            .iter()
            .any(|option| EXCUSES.contains(&&**option));
        let has_place = line.mount_point.starts_with('/');
        line.mounted.is_none()
            && has_place
            && !excused
            && line.kind != "swap"
            && line.kind != "ignore"
    });
    missing
        .map(|line| Finding {
            rule: "fstab-not-mounted".to_owned(),
            title: format!("{} is not mounted", line.mount_point),
            configured: format!(
                "/etc/fstab: {} on {} as {}",
                line.device, line.mount_point, line.kind
            ),
            effective: "not mounted; data written there goes to the parent file system".to_owned(),
            measured: "/proc/mounts".to_owned(),
            confidence: Confidence::Likely,
            severity: Severity::Warning,
            cost: Cost::unmeasured(
                "the data is on a disk whose space and speed are not as planned",
            ),
            proposal: None,
            remedy: format!("mount {}, or add noauto to its line", line.mount_point),
        })
        .collect()
}
