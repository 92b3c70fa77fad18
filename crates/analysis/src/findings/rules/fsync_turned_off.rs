//! Finds programs whose fsync does nothing, and file systems that ignore fsync.

use std::collections::BTreeMap;

use ticktax_model::configured::FsyncOffBy;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;
use super::super::facts::Mount;

const PRELOAD: &str = "etc/ld.so.preload";
/// The library that turns a program's fsync into a no-op.
const TAKES_FSYNC: &str = "libeatmydata";
/// Options that make an overlay ignore fsync. The kernel version decides which one is used.
const VOLATILE: [&str; 2] = ["volatile", "fsync=volatile"];
/// Maximum number of processes named in a finding.
const NAMED: usize = 4;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let everywhere = facts.configured.file(PRELOAD);
    let everywhere = everywhere.filter(|text| text.contains(TAKES_FSYNC));
    let mut programs: BTreeMap<(&FsyncOffBy, &str), Vec<i32>> = BTreeMap::new();
    for process in &facts.configured.fsync_off {
        // If every program loads the library, report that only once.
        if everywhere.is_none() || matches!(process.cause, FsyncOffBy::Argument(_)) {
            let key = (&process.cause, &*process.program);
            programs.entry(key).or_default().push(process.pid);
        }
    }
    let programs = programs
        .iter()
        .map(|((by, program), pids)| for_program(by, program, pids));
    let volatile = facts
        .mounts()
        .filter(|mount| mount.mounted.kind == "overlay" && mount.first_of(&VOLATILE).is_some());
    everywhere
        .map(for_preload)
        .into_iter()
        .chain(programs)
        .chain(volatile.map(|mount| for_mount(&mount)))
        .collect()
}

fn for_preload(preload: &str) -> Finding {
    let words: Vec<&str> = preload.split_ascii_whitespace().collect();
    finding(
        "fsync does nothing in any program".to_owned(),
        format!("/{PRELOAD}: {}", words.join(" ")),
        "a library replaces fsync in every dynamically linked program".to_owned(),
        &format!("/{PRELOAD}"),
        format!(
            "remove {TAKES_FSYNC} from /{PRELOAD}, and restart programs that need durable data"
        ),
    )
}

fn for_program(by: &FsyncOffBy, program: &str, pids: &[i32]) -> Finding {
    let named: Vec<String> = pids.iter().take(NAMED).map(i32::to_string).collect();
    let more = match pids.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let who = format!("{program}, process {}{more}", named.join(", "));
    let title = format!("fsync does nothing in {program}");
    match by {
        FsyncOffBy::Library(path) => finding(
            title,
            format!("{who}: LD_PRELOAD"),
            format!("{path} is loaded and replaces fsync"),
            "/proc/PID/environ and /proc/PID/maps",
            format!("start {program} without it"),
        ),
        FsyncOffBy::Argument(argument) => finding(
            title,
            format!("{who}: {argument}"),
            "it does not call fsync".to_owned(),
            "/proc/PID/cmdline",
            format!("start {program} without {argument}"),
        ),
    }
}

fn for_mount(mount: &Mount<'_>) -> Finding {
    finding(
        format!("fsync on {} does nothing", mount.place),
        mount.configured(),
        "an overlay mounted with volatile ignores fsync".to_owned(),
        "/proc/mounts",
        format!("mount {} without volatile", mount.place),
    )
}

fn finding(
    title: String,
    configured: String,
    effective: String,
    measured: &str,
    remedy: String,
) -> Finding {
    Finding {
        rule: "fsync-turned-off".to_owned(),
        title,
        configured,
        effective,
        measured: measured.to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(
            "a power failure loses recent writes, and benchmarks measure memory instead of the \
             disk",
        ),
        proposal: None,
        remedy,
    }
}
