//! Finds a directory exported over NFS with an option that lets fsync return before the data are on
//! disk.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

const EXPORTS: &str = "proc/fs/nfsd/exports";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let exports = facts.configured.file(EXPORTS).unwrap_or_default();
    exports.lines().filter_map(found).collect()
}

/// Parses a line in the exports list: a directory, a tab, the client, and the client's options in
/// parentheses.
fn found(line: &str) -> Option<Finding> {
    let (place, client) = line.split_once('\t').filter(|_| !line.starts_with('#'))?;
    let (client, options) = client.trim().split_once('(')?;
    let options: Vec<&str> = options.trim_end_matches(')').split(',').collect();
    let is_lost = options.contains(&"async") && !options.contains(&"ro");
    is_lost.then(|| Finding {
        rule: "nfs-export-async".to_owned(),
        title: format!("{place} confirms an fsync by {client} before the data is on disk"),
        configured: "/etc/exports: async".to_owned(),
        effective: format!("exported to {client} with {}", options.join(",")),
        measured: format!("/{EXPORTS}"),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "if this machine crashes, its clients lose data that fsync reported as written, \
             without an error",
        ),
        proposal: None,
        remedy: format!("export {place} with sync, and run exportfs -ra"),
    })
}
