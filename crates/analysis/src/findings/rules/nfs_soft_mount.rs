//! Finds a writable NFS mount on which programs get an I/O error when the server is slow to answer.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;
use super::super::facts::Mount;

/// Options that make the client give up waiting for the server.
const SOFT: [&str; 2] = ["soft", "softerr"];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    facts.mounts().filter_map(|mount| found(&mount)).collect()
}

fn found(mount: &Mount<'_>) -> Option<Finding> {
    // A read-only mount has no writes to lose.
    let soft = mount.first_of(&SOFT);
    let soft = soft.filter(|_| mount.is_nfs() && !mount.has("ro"))?;
    let times = mount.mounted.options.iter().filter(|option| {
        let known = |name| {
            option
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('='))
        };
        known("timeo") || known("retrans")
    });
    let times: Vec<&str> = times.map(String::as_str).collect();
    let how = match &*times {
        [] => String::new(),
        times => format!(" ({})", times.join(",")),
    };
    Some(Finding {
        rule: "nfs-soft-mount".to_owned(),
        title: format!("{} fails when its server is slow", mount.place),
        configured: mount.configured(),
        effective: format!("mounted {soft}{how}: a late reply becomes an I/O error"),
        measured: "/proc/mounts".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "unsent data is lost, unless the program checks the results of fsync and close",
        ),
        proposal: None,
        remedy: format!(
            "mount {} with hard, so that programs wait for the server",
            mount.place
        ),
    })
}
