//! Advice on the memory limits of cgroups.

use ticktax_model::machine::MemoryLimit;

use super::super::Screen;
use super::commands::{and_audit, quoted};
use crate::text::numbers::{bytes, counted};
use crate::text::page::tied;

/// Returns the advice to raise a memory limit that was reached. `stalled` describes what the
/// program lost, as in `it spent 20 ms reclaiming memory`.
pub(super) fn raise(
    limit: &MemoryLimit,
    stalled: &str,
    screen: &Screen<'_>,
) -> (String, Option<String>) {
    let path = limit.cgroup.trim_start_matches("/sys/fs/cgroup");
    // Cgroup v1 mounts each controller in a separate directory.
    let group = match &*limit.file {
        "memory.limit_in_bytes" => path.trim_start_matches("/memory"),
        _ => path,
    };
    let sentence = format!(
        "Raise {} of its cgroup {group}, or write and cache less: the group reached this limit of \
         {} {}, and {stalled}.",
        limit.file,
        bytes(limit.bytes),
        tied(counted(limit.hits, "time")),
    );
    let command = screen.names_processes().then(|| {
        let file = quoted(&format!("{}/{}", limit.cgroup, limit.file))?;
        let doubled = limit.bytes.saturating_mul(2);
        Some(and_audit(format!("echo {doubled} > {file}"), screen))
    });
    (sentence, command.flatten())
}
