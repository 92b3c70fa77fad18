//! Finds a file system whose mounted type differs from the one in `/etc/fstab`. For example, `ext3`
//! mounted as `ext2` has no journal.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Pairs of names for the same type of file system.
const SAME: [[&str; 2]; 4] = [
    ["nfs", "nfs4"],
    ["cifs", "smb3"],
    ["msdos", "vfat"],
    ["ntfs", "ntfs3"],
];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let lines = facts.configured.fstab.iter();
    let differs = lines
        .filter_map(|line| Some((line, line.mounted.as_ref()?)))
        .filter(|(line, mounted)| {
            let view = line
                .options
                .iter()
                .any(|option| matches!(&**option, "bind" | "rbind"));
            let settled = |kind: &str| matches!(kind, "auto" | "none" | "swap" | "ignore");
            let programs = |kind: &str| kind.starts_with("fuse") || kind == "autofs";
            let wanted: Vec<&str> = line.kind.split(',').collect();
            let same = wanted.iter().any(|kind| {
                *kind == mounted.kind
                    || settled(kind)
                    || SAME
                        .iter()
                        .any(|pair| pair.contains(kind) && pair.contains(&&*mounted.kind))
            });
            let by_program = programs(&mounted.kind) || wanted.iter().any(|kind| programs(kind));
            !view && !same && !by_program
        });
    differs
        .map(|(line, mounted)| {
            let lost_journal = mounted.kind == "ext2" && line.kind != "ext2";
            Finding {
                rule: "fstab-type-not-in-effect".to_owned(),
                title: format!("{} is not a {} file system", line.mount_point, line.kind),
                configured: format!("/etc/fstab: {} as {}", line.mount_point, line.kind),
                effective: format!("mounted as {}", mounted.kind),
                measured: "/proc/mounts".to_owned(),
                confidence: Confidence::Certain,
                severity: if lost_journal {
                    Severity::Serious
                } else {
                    Severity::Warning
                },
                cost: lost_journal
                    .then(|| {
                        Cost::unmeasured("no journal: a long check after a crash, and lost files")
                    })
                    .flatten(),
                proposal: None,
                remedy: "fix the line in /etc/fstab, or mount it again; for the root file system, \
                    pass rootfstype= to the kernel or fix the initial ramdisk"
                    .to_owned(),
            }
        })
        .collect()
}
