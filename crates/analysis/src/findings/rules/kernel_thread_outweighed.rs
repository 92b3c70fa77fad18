//! Finds kernel threads that waited behind a cgroup with a large CPU weight.
//!
//! Kernel threads live in the root cgroup, where each thread has the default weight. A cgroup with
//! many times that weight gets nearly all of a CPU that it shares with them, even if they are doing
//! I/O on the cgroup's behalf.

use ticktax_model::Nanos;
use ticktax_model::advice::GroupContest;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::group::GroupWeight;

use super::super::Facts;
use crate::groups::Groups;

/// Minimum waiting time of a kernel thread to report, as a share of the recording.
const MUCH: f64 = 0.01;
/// A weight is large if it is at least this many times the default.
const LARGE: u64 = 4;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(waits) = facts.waits else {
        return Vec::new();
    };
    let groups = Groups::from_header(facts.header);
    let wall = facts.header.cpus.iter().map(|cpu| cpu.end - cpu.begin);
    let wall = wall.max().unwrap_or_default();
    // Kernel threads are listed without process IDs.
    let kernel = waits
        .programs
        .iter()
        .filter(|waiter| waiter.pids.is_empty());
    let behind = kernel.filter_map(|waiter| {
        let culprit = waiter.behind.first()?;
        let pid = *culprit.pids.first()?;
        let settings = groups.of(pid)?.settings.as_deref()?;
        let top = settings.weights.first()?;
        let default = default_of(top)?;
        let is_much = culprit.time.share_of(wall) >= MUCH;
        (is_much && top.weight >= LARGE * default).then_some((waiter, culprit, top, default))
    });
    let worst = behind.max_by_key(|(_, culprit, ..)| culprit.time);
    let Some((waiter, culprit, top, default)) = worst else {
        return Vec::new();
    };
    let longest: Nanos = waiter.max;
    let works_for = facts
        .groups
        .iter()
        .filter(|group| culprit.pids.iter().any(|pid| group.pids.contains(pid)))
        .flat_map(|group| group.woken.iter().map(move |woken| (group, woken)))
        .find(|(_, woken)| woken.thread == waiter.name);
    let own_work = works_for.map_or_else(String::new, |(group, woken)| {
        format!(
            "; it works for {} itself, whose threads woke it {} of {} times",
            group.name, woken.count, woken.count_by_all
        )
    });
    vec![Finding {
        rule: "kernel-thread-outweighed".to_owned(),
        title: match works_for {
            Some((group, _)) => format!(
                "The large weight of {} starves the kernel's {}, which works for it",
                group.name, waiter.name
            ),
            None => format!(
                "The kernel's {} waits behind a group with a large weight",
                waiter.name
            ),
        },
        configured: format!(
            "{} has CPU weight {}; a kernel thread has {default}",
            top.path, top.weight
        ),
        effective: format!(
            "{} waited {} behind {} in this group, up to {longest} at once{own_work}",
            waiter.name, culprit.time, culprit.name
        ),
        measured: "run-queue waits and wake-ups of the kernel thread, and the weights of the group"
            .to_owned(),
        confidence: Confidence::Likely,
        severity: match works_for {
            Some(_) => Severity::Serious,
            None => Severity::Warning,
        },
        cost: Some(Cost::new(
            "the kernel thread's work is late",
            Some(culprit.time),
        )),
        proposal: None,
        remedy: "lower this weight, or keep the group off one CPU (cpuset)".to_owned(),
    }]
}

/// Returns the weight of a nice 0 thread, in the same unit as this weight.
fn default_of(weight: &GroupWeight) -> Option<u64> {
    let file = weight.file.as_deref()?;
    Some(if file.ends_with("cpu.shares") {
        GroupContest::DEFAULT_SHARES
    } else {
        GroupContest::DEFAULT_WEIGHT
    })
}
