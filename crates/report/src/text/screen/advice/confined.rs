//! Advice on cpusets.

use ticktax_model::advice::Advice;

use super::super::Screen;
use super::commands::{and_audit, quoted};
use crate::text::numbers::{cpu_names, percent};
use crate::text::page::tied;

/// Returns a sentence that describes advice on a cpuset, and a command.
pub(super) fn words(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    let Advice::ConfinedToCpus {
        file,
        cpus,
        idle_cpus,
        proposed_cpus,
        idle_share,
        time,
    } = advice
    else {
        return (String::new(), None);
    };
    let path = file.trim_start_matches("/sys/fs/cgroup");
    let group = path.rsplit_once('/').map_or(path, |(group, _)| group);
    // Cgroup v1 mounts each controller in a separate directory.
    let group = group.strip_prefix("/cpuset").unwrap_or(group);
    let were = if idle_cpus.len() == 1 { "was" } else { "were" };
    let sentence = format!(
        "Let its cgroup {group} use more CPUs (cpuset.cpus): it may only use {}, and waited {} \
         there, while {} {were} at least {} idle.",
        cpu_names(cpus.iter()),
        tied(time),
        cpu_names(idle_cpus.iter()),
        tied(percent(*idle_share)),
    );
    let command = screen.names_processes().then(|| {
        let file = quoted(file)?;
        Some(and_audit(format!("echo {proposed_cpus} > {file}"), screen))
    });
    (sentence, command.flatten())
}
