//! Finds mount options that `/etc/fstab` requests but the mounted file system doesn't have.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

use ticktax_model::configured::{FstabLine, Mounted};

/// Options that a file system lists if it honours them, each with the consequence if it doesn't.
const FLAGS: [(&str, &str); 7] = [
    ("dirsync", "changes to directories can be lost in a crash"),
    ("noatime", "reading a file can write its access time"),
    ("nodev", "device files work there"),
    ("noexec", "programs can be run from there"),
    ("nosuid", "programs there can gain their owner's rights"),
    ("ro", "it can be written to"),
    ("sync", "written data can be lost in a crash"),
];

/// File systems that are always read-only.
const READ_ONLY: [&str; 5] = ["cramfs", "erofs", "iso9660", "squashfs", "udf"];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in &facts.configured.fstab {
        let Some(mounted) = &line.mounted else {
            continue;
        };
        // A line that binds, remounts or moves a mount gets its options from that mount.
        let is_view = |option: &String| matches!(&**option, "bind" | "rbind" | "remount" | "move");
        if line.options.iter().any(is_view) || line.kind == "swap" {
            continue;
        }
        findings.extend(flags(line, mounted));
        findings.extend(read_only(line, mounted));
        findings.extend(journal(line, mounted));
    }
    findings
}

fn has(options: &[String], name: &str) -> bool {
    options.iter().any(|option| option == name)
}

fn value<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    let value = |option: &'a String| option.strip_prefix(name)?.strip_prefix('=');
    options.iter().filter_map(value).next_back()
}

fn finding(line: &FstabLine, configured: &str, effective: &str, cost: &str) -> Finding {
    Finding {
        rule: "fstab-options-not-in-effect".to_owned(),
        title: format!("{} is not mounted as configured", line.mount_point),
        configured: format!("/etc/fstab: {} with {configured}", line.mount_point),
        effective: effective.to_owned(),
        measured: "/proc/mounts, and /proc/fs for options missing there".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(cost),
        proposal: None,
        remedy: format!(
            "run `mount -o remount {}`; for the root file system, check the initial ramdisk and \
             rootflags=",
            line.mount_point
        ),
    }
}

/// Returns whether the options set `flag`. If they contain opposites, the last one counts:
/// `noexec,exec` does not set `noexec`.
fn is_asked(options: &[String], flag: &str) -> bool {
    let opposite = match flag {
        "ro" => Some("rw"),
        "sync" => Some("async"),
        _ => flag.strip_prefix("no"),
    };
    let last = |name: &str| options.iter().rposition(|option| option == name);
    last(flag).is_some_and(|place| opposite.and_then(last).is_none_or(|other| other < place))
}

fn flags(line: &FstabLine, mounted: &Mounted) -> Option<Finding> {
    let lacks =
        |(flag, _): &&(&str, &str)| is_asked(&line.options, flag) && !has(&mounted.options, flag);
    let lacking: Vec<_> = FLAGS.iter().filter(lacks).collect();
    if lacking.is_empty() {
        return None;
    }
    let names: Vec<&str> = lacking.iter().map(|(flag, _)| *flag).collect();
    let costs: Vec<&str> = lacking.iter().map(|(_, cost)| *cost).collect();
    let effective = format!("missing from its options {}", mounted.options.join(","));
    Some(finding(
        line,
        &names.join(","),
        &effective,
        &costs.join("; "),
    ))
}

fn read_only(line: &FstabLine, mounted: &Mounted) -> Option<Finding> {
    let unwanted = has(&mounted.options, "ro")
        && !is_asked(&line.options, "ro")
        && !READ_ONLY.contains(&&*mounted.kind)
        && mounted.kind == line.kind;
    unwanted.then(|| Finding {
        severity: Severity::Serious,
        proposal: None,
        remedy: format!(
            "find the error on {} in the kernel log, and check the file system before making it \
             writable again",
            mounted.device
        ),
        ..finding(
            line,
            "writable",
            "mounted read-only, as after an error",
            "writes fail",
        )
    })
}

/// Compares the journalling mode of an ext file system with the one configured.
fn journal(line: &FstabLine, mounted: &Mounted) -> Option<Finding> {
    let asked = value(&line.options, "data")?;
    let effective = value(&mounted.options, "data")?;
    (asked != effective).then(|| {
        finding(
            line,
            &format!("data={asked}"),
            &format!("data={effective}"),
            "a crash leaves files in a different state than intended, or each write costs more",
        )
    })
}
