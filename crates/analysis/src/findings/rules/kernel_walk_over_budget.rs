//! Finds kernel functions that walk a long list while the watched program's loop waits for the CPU.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::kernel_walk::{KernelList, SampledWalk};
use ticktax_model::victim::Interferer;

use super::super::Facts;

/// Minimum number of samples in the walk.
const SAMPLES: u64 = 3;

/// Returns the list that the kernel walked for an interferer, and the longest time for which the
/// program waited for it.
fn walk(interferer: &Interferer) -> Option<(&Interferer, &SampledWalk, Nanos)> {
    let walk = interferer.code.as_ref()?.walk.as_ref()?;
    (walk.samples >= SAMPLES).then_some((interferer, walk, walk.longest?))
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let frames = facts.victim.and_then(|victim| victim.frames.as_ref());
    let (Some(threads), Some(frames)) = (facts.threads, frames) else {
        return Vec::new();
    };
    let budget = frames.figures.period;
    let walks = threads.behind.iter().filter_map(walk);
    let too_long = walks.filter(|&(_, _, longest)| longest > budget);
    too_long
        .map(|(interferer, walk, longest)| {
            let Interferer { name, time, .. } = interferer;
            let SampledWalk { function, list, .. } = walk;
            let objects = walk.objects.map_or_else(
                || format!("an unknown number of {list}"),
                |objects| format!("up to {objects} {list}"),
            );
            let each = walk.per_object.map_or_else(String::new, |each| {
                format!(" (at least {each} per object on average)")
            });
            let owner = interferer
                .pid
                .map_or_else(|| name.clone(), |pid| format!("{name} ({pid})"));
            Finding {
                rule: "kernel-walk-over-budget".to_owned(),
                title: format!("The kernel walks {objects} while the watched program waits"),
                configured: format!(
                    "a loop of {} with a period of {budget}, in thread {}",
                    facts.victim.map_or("the program", |victim| &victim.name),
                    frames.thread
                ),
                effective: format!(
                    "{owner} kept the CPU in {function} for up to {longest} without a break{each}"
                ),
                measured: format!(
                    "{} stack samples, taken by timer interrupts while the program waited, and /{}",
                    walk.samples,
                    list.file()
                ),
                confidence: Confidence::Likely,
                severity: Severity::Serious,
                cost: Some(Cost::new("the program waited for the CPU", Some(*time))),
                proposal: None,
                remedy: format!("{}, or keep {owner} off the program's CPUs", remedy(*list)),
            }
        })
        .collect()
}

fn remedy(list: KernelList) -> &'static str {
    match list {
        KernelList::Inodes => {
            "keep fewer files in memory (`ticktax mem objects` lists the kernel's objects)"
        }
        KernelList::Dentries => {
            "keep fewer files in one directory, and keep a watch on a large directory instead of \
             renewing it (`ticktax mem objects` lists the kernel's objects)"
        }
        KernelList::Threads => "start fewer threads, or send signals to chosen processes only",
    }
}
