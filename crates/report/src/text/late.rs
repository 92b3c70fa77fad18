//! A few lines about what delayed a loop's frames.

use ticktax_model::victim::{HoldUp, LateCause, LateFrames, LateTime};
use ticktax_model::{Kind, Nanos};

use super::beats::short_period;
use super::numbers::{counted, grouped};
use super::page::{Page, Tone, tied};

/// Maximum number of causes named.
const CAUSES: usize = 3;

/// Writes the causes of the late frames. `from` is the lateness threshold, if the page has not
/// printed it yet.
pub(super) fn write(page: &mut Page, late: &LateFrames, from: Option<Nanos>) {
    let (shown, others) = late.causes.split_at(late.causes.len().min(CAUSES));
    let mut parts: Vec<String> = shown.iter().map(cause).collect();
    let sum = |count: fn(&LateCause) -> u64| others.iter().map(count).sum();
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

/// The number of frames that were late by more than `from`.
pub(super) fn over(late: u64, from: Nanos) -> String {
    tied(format!("{} over {from} late", grouped(late)))
}

/// A kind of delay below this share of all delay did not make frames late.
const SMALL: f64 = 0.01;

/// Writes which kinds of delay took little or no time of the late frames. `Stopped` is left out,
/// because the user knows about it.
pub(super) fn ruled_out(page: &mut Page, late: &LateFrames) {
    let all: Nanos = late.by_kind.iter().map(|delay| delay.time).sum();
    let small = late.by_kind.iter().filter(|delay| {
        let excluded = !delay.kind.is_own() && delay.kind != HoldUp::Stopped;
        excluded && delay.frames == 0 && most(delay, late).share_of(all) < SMALL
    });
    let names: Vec<String> = small
        .map(|delay| match most(delay, late) {
            Nanos::ZERO => kind(delay.kind).to_owned(),
            time => tied(format!("{} {time}", kind(delay.kind))),
        })
        .collect();
    if !names.is_empty() {
        page.paragraph(Tone::Plain, "Not the cause: ", &names.join(", "));
    }
}

/// Writes a warning if the hypervisor may have taken more than the trace shows.
pub(super) fn possible_steal(page: &mut Page, late: &LateFrames) {
    if let Some(stolen) = unplaced_steal(late) {
        let text = format!(
            "the hypervisor took {} of its CPUs meanwhile, seen in no late frame.",
            tied(stolen)
        );
        page.paragraph(Tone::Warning, "Perhaps: ", &text);
    }
}

/// CPU time stolen during late frames although no frame shows steal. `None` if it is small.
pub(super) fn unplaced_steal(late: &LateFrames) -> Option<Nanos> {
    let all: Nanos = late.by_kind.iter().map(|delay| delay.time).sum();
    let mut kinds = late.by_kind.iter();
    let placed = kinds.any(|delay| delay.kind == HoldUp::Steal && delay.frames > 0);
    let stolen = late.stolen.filter(|time| time.share_of(all) >= SMALL);
    stolen.filter(|_| !placed)
}

/// Upper limit of the time that this kind of delay took.
fn most(delay: &LateTime, late: &LateFrames) -> Nanos {
    match delay.kind {
        HoldUp::Steal => delay.time.max(late.stolen.unwrap_or_default()),
        _ => delay.time,
    }
}

/// Number of late frames, plus the dropped frames before them.
fn with_lost(frames: u64, lost: u64) -> String {
    match lost {
        0 => tied(grouped(frames)),
        lost => tied(format!("{}+{}", grouped(frames), grouped(lost))),
    }
}

/// A cause with its number of frames and, if it is periodic, its period.
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

/// The display name of a cause.
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
