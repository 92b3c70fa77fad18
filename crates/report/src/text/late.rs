//! What held up the frames of a loop, in a few lines.

use ticktax_model::victim::{HoldUp, LateCause, LateFrames, LateTime};
use ticktax_model::{Kind, Nanos};

use super::beats::short_period;
use super::numbers::{counted, grouped};
use super::page::{Page, Tone, tied};

/// Causes that are named.
const CAUSES: usize = 3;

/// Writes who held up the late frames, and what did not; `from` is how late a late frame is, where that was not said.
pub(super) fn write(page: &mut Page, late: &LateFrames, from: Option<Nanos>) {
    let (shown, others) = late.causes.split_at(late.causes.len().min(CAUSES));
    let mut parts: Vec<String> = shown.iter().map(cause).collect();
    let sum = |of: fn(&LateCause) -> u64| others.iter().map(of).sum();
    let rest = (sum(|cause| cause.frames), sum(|cause| cause.lost));
    for (word, (frames, lost)) in [("others", rest), ("not looked at", (late.not_judged, 0))] {
        parts.extend((frames > 0).then(|| format!("{word} {}", with_lost(frames, lost))));
    }
    let all = late.frames + late.not_judged;
    let head = match (from, late.lost) {
        (None, 0) => counted(all, "late frame"),
        (None, _) => format!("{} late", grouped(all)),
        (Some(from), _) => over(all, from),
    };
    let dropped = match late.lost {
        0 => String::new(),
        lost => format!(" + {}", tied(format!("{} dropped", grouped(lost)))),
    };
    page.hanging(
        Tone::Strong,
        &format!("{}{dropped}: {}", tied(head), parts.join("; ")),
    );
}

/// How many frames were late, and by what.
pub(super) fn over(late: u64, from: Nanos) -> String {
    tied(format!("{} over {from} late", grouped(late)))
}

/// What took less than this share of the late frames' delays did not make them late.
const SMALL: f64 = 0.01;

/// What took nothing of the late frames' delays, or next to nothing. Who is stopped knows of it.
pub(super) fn not_the_cause(page: &mut Page, late: &LateFrames) {
    let all: Nanos = late.by_kind.iter().map(|one| one.time).sum();
    let small = late.by_kind.iter().filter(|one| {
        let told = !one.kind.is_own() && one.kind != HoldUp::Stopped;
        told && one.frames == 0 && most(one, late).share_of(all) < SMALL
    });
    let names: Vec<String> = small
        .map(|one| match most(one, late) {
            Nanos::ZERO => kind(one.kind).to_owned(),
            time => tied(format!("{} {time}", kind(one.kind))),
        })
        .collect();
    if !names.is_empty() {
        page.paragraph(Tone::Plain, "Not the cause: ", &names.join(", "));
    }
}

/// What the hypervisor took, where that may be more than was seen of it.
pub(super) fn perhaps(page: &mut Page, late: &LateFrames) {
    if let Some(stolen) = perhaps_stolen(late) {
        let text = format!(
            "the hypervisor took {} of its CPUs meanwhile, seen in no late frame.",
            tied(stolen)
        );
        page.paragraph(Tone::Warning, "Perhaps: ", &text);
    }
}

/// What the hypervisor took of its CPUs during late frames without being seen in one, where that is much.
pub(super) fn perhaps_stolen(late: &LateFrames) -> Option<Nanos> {
    let all: Nanos = late.by_kind.iter().map(|one| one.time).sum();
    let mut kinds = late.by_kind.iter();
    let placed = kinds.any(|one| one.kind == HoldUp::Steal && one.frames > 0);
    let stolen = late.stolen.filter(|time| time.share_of(all) >= SMALL);
    stolen.filter(|_| !placed)
}

/// The most that this kind of delay may have taken.
fn most(one: &LateTime, late: &LateFrames) -> Nanos {
    match one.kind {
        HoldUp::Steal => one.time.max(late.stolen.unwrap_or_default()),
        _ => one.time,
    }
}

/// Late frames, and the slots before them that got none.
fn with_lost(frames: u64, lost: u64) -> String {
    match lost {
        0 => tied(grouped(frames)),
        lost => tied(format!("{}+{}", grouped(frames), grouped(lost))),
    }
}

/// A cause with its frames and, where it has one, its rhythm.
fn cause(cause: &LateCause) -> String {
    let mut text = format!("{} {}", name(cause), with_lost(cause.frames, cause.lost));
    let mut about = Vec::new();
    about.extend(
        cause
            .period
            .map(|ns| tied(format!("every {}", short_period(ns)))),
    );
    about.extend(cause.policy.map(tied));
    about.extend(
        cause
            .timer
            .as_deref()
            .map(|timer| tied(format!("by {timer}"))),
    );
    if !about.is_empty() {
        text = format!("{text} ({})", about.join(", "));
    }
    text
}

/// Who or what it was.
pub(super) fn name(cause: &LateCause) -> String {
    match &cause.by {
        Some(by) if by.kind == Kind::Idle => "waking an idle CPU".to_owned(),
        Some(by) => match *by.pids {
            [pid] => format!("{} {}", by.name, tied(format!("({pid})"))),
            [] => by.name.clone(),
            _ => format!("{} {}", by.name, tied(format!("x{}", by.pids.len()))),
        },
        None => kind(cause.kind).to_owned(),
    }
}

/// The words for a kind of delay.
pub(super) fn kind(kind: HoldUp) -> &'static str {
    match kind {
        HoldUp::Waiting => "waiting for a CPU",
        HoldUp::Migration => "moving to another CPU",
        HoldUp::Interrupts => "interrupts",
        HoldUp::Steal => "steal",
        HoldUp::Quota => "its CPU quota",
        HoldUp::PageFaults => "page faults",
        HoldUp::Reclaim => "reclaiming memory",
        HoldUp::Disk => "a disk",
        HoldUp::Lock => "a lock of the kernel's",
        HoldUp::Stopped => "being stopped",
        HoldUp::OwnWork => "longer work",
        HoldUp::OwnSleep => "asleep",
        HoldUp::Unexplained => "unexplained",
    }
}
