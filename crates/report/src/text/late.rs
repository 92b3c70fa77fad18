//! The causes of a loop's late frames, which are frames that started late.

use ticktax_model::victim::{HoldUp, LateCause, LateFrames, LateTime, LostTo};
use ticktax_model::{Kind, Nanos};

use super::beats::short_period;
use super::block::Columns;
use super::cells::by_name;
use super::numbers::{WAKE_UP, counted, displayed, grouped};
use super::page::{Page, TIE, Tone, elide, tied};
use super::stalls::{call_name, kind_name};

/// Maximum number of causes listed by name.
const CAUSES: usize = 3;
/// Minimum page width for the pattern column.
const WIDE: usize = 72;
/// Width of the pattern column.
const PATTERN: usize = 34;

/// Writes a table of causes, with the number of frames that each cause made late and the number of
/// frames dropped before those.
pub(super) fn table(page: &mut Page, late: &LateFrames) {
    let wide = page.width() >= WIDE;
    let cells = |late: &str, dropped: &str, pattern: &str| {
        let cells = Columns::right([(7, late), (8, dropped)]);
        if wide {
            return cells.and_left(2, PATTERN, elide(pattern, PATTERN));
        }
        cells
    };
    let number = |count| grouped(count).replace(TIE, " ");
    let heading = cells("late", "dropped", "period, policy, timer");
    page.headings(Tone::Strong, "LATE FRAMES BY CAUSE", &heading);
    let (shown, others) = late.causes.split_at(by_name(late.causes.len(), CAUSES));
    for cause in shown {
        let cells = cells(
            &number(cause.frames),
            &number(cause.dropped),
            &pattern(cause),
        );
        page.row(Tone::Plain, 2, &name(cause).replace(TIE, " "), &cells);
    }
    let sum = |count: fn(&LateCause) -> u64| others.iter().map(count).sum();
    let rest = (sum(|cause| cause.frames), sum(|cause| cause.dropped));
    let other = counted(others.len() as u64, "other").replace(TIE, " ");
    for (name, (frames, dropped)) in [(&*other, rest), ("unknown", (late.unclassified, 0))] {
        if frames > 0 {
            let cells = cells(&number(frames), &number(dropped), "");
            page.row(Tone::Faint, 2, name, &cells);
        }
    }
}

/// Formats how many frames were late by more than `from`.
pub(super) fn over(late: u64, from: Nanos) -> String {
    tied(format!("{} late by > {from}", grouped(late)))
}

/// Minimum share of all delay for a kind of delay. Kinds below it are ruled out as causes of late
/// frames.
const SMALL: f64 = 0.01;

/// Lists the kinds of delay that contributed little or nothing to late frames. Leaves out kinds
/// that can affect only few programs, such as being stopped.
pub(super) fn ruled_out(page: &mut Page, late: &LateFrames) {
    let all: Nanos = late.by_kind.iter().map(|delay| delay.time).sum();
    let small = late.by_kind.iter().filter(|delay| {
        let special = delay.kind == HoldUp::Stopped || delay.kind.is_rare();
        let excluded = !delay.kind.is_own() && !special;
        excluded && delay.frames == 0 && most(delay, late).share_of(all) < SMALL
    });
    let (none, small): (Vec<&LateTime>, Vec<&LateTime>) =
        small.partition(|delay| most(delay, late) == Nanos::ZERO);
    let small = small.into_iter();
    let small: Vec<String> = small
        .map(|delay| tied(format!("{} ({})", kind(delay.kind), most(delay, late))))
        .collect();
    let none: Vec<String> = none.iter().map(|delay| tied(kind(delay.kind))).collect();
    if let Some(text) = ruled_out_in_words(&small, &none) {
        page.paragraph(Tone::Plain, "Ruled out: ", &text);
    }
}

/// Describes the causes that took little time, each with its time, and the causes that took no
/// time. Returns `None` if both lists are empty.
pub(super) fn ruled_out_in_words(small: &[String], none: &[String]) -> Option<String> {
    let parts: Vec<String> = if small.is_empty() {
        none.to_vec()
    } else {
        let none = none.iter().map(|name| tied(format!("{name} (none)")));
        small.iter().cloned().chain(none).collect()
    };
    (!parts.is_empty()).then(|| format!("{}.", parts.join(", ")))
}

/// Writes a warning if the hypervisor may have taken more time than the trace shows.
pub(super) fn possible_steal(page: &mut Page, late: &LateFrames) {
    if let Some(stolen) = unplaced_steal(late) {
        let text = format!(
            "steal; the hypervisor took {} from its CPUs, at unknown times.",
            tied(stolen)
        );
        page.paragraph(Tone::Warning, "Possible cause: ", &text);
    }
}

/// Returns the CPU time that the hypervisor took during late frames. Returns `None` if a late frame
/// is attributed to steal, if the time is negligible, or if something else explains all late
/// frames.
pub(super) fn unplaced_steal(late: &LateFrames) -> Option<Nanos> {
    let all: Nanos = late.by_kind.iter().map(|delay| delay.time).sum();
    let mut kinds = late.by_kind.iter();
    let placed = kinds.any(|delay| delay.kind == HoldUp::Steal && delay.frames > 0);
    let stolen = late.stolen.filter(|time| time.share_of(all) >= SMALL);
    let is_open = late.unclassified > 0 || late.causes.iter().any(|cause| can_be_steal(cause.kind));
    stolen.filter(|_| !placed && is_open)
}

/// Returns whether stolen time can look like this kind of delay. A disk or a limit delays a thread
/// however much time is stolen. But the holder of a lock can lose its CPU to the hypervisor.
fn can_be_steal(kind: HoldUp) -> bool {
    use HoldUp::{
        Deadline, Disk, Frozen, FrozenFileSystem, Quota, RealTimeLimit, Stopped, TimerSlack,
        Writeback,
    };
    !matches!(
        kind,
        Deadline
            | Disk
            | Frozen
            | FrozenFileSystem
            | Quota
            | RealTimeLimit
            | Stopped
            | TimerSlack
            | Writeback
    )
}

/// Returns an upper bound on the time that a kind of delay took.
fn most(delay: &LateTime, late: &LateFrames) -> Nanos {
    match delay.kind {
        HoldUp::Steal => delay.time.max(late.stolen.unwrap_or_default()),
        _ => delay.time,
    }
}

/// Formats what is known about a cause's pattern: its period, scheduling policy and timer.
fn pattern(cause: &LateCause) -> String {
    let mut parts = Vec::new();
    parts.extend(cause.period.map(short_period));
    parts.extend(cause.policy.map(|policy| policy.to_string()));
    // The last word in a timer's description is the name of its function.
    let timer = cause.timer.as_deref();
    let function = timer.and_then(|timer| timer.split_whitespace().last());
    parts.extend(function.map(str::to_owned));
    parts.join(", ")
}

/// Returns the display name of a cause.
pub(super) fn name(cause: &LateCause) -> String {
    if let Some(call) = &cause.syscall {
        return format!("its own {}() call", call_name(call));
    }
    match &cause.culprit {
        Some(by) if cause.kind == HoldUp::OwnThread => format!("wait for its {} thread", by.name),
        Some(by) if by.kind == Kind::Idle => WAKE_UP.to_owned(),
        Some(by) => match cause.kind {
            HoldUp::OtherThread => format!("wait for {}", processes(by)),
            HoldUp::ChildProcess => format!("wait for its child {}", processes(by)),
            _ => processes(by),
        },
        None => kind(cause.kind).to_owned(),
    }
}

/// Returns the name of a culprit, with its process ID or its number of processes.
fn processes(by: &LostTo) -> String {
    match *by.pids {
        [pid] => format!("{} {}", by.name, tied(format!("({pid})"))),
        [] => displayed(&by.name).to_owned(),
        _ => format!("{} {}", by.name, tied(format!("x{}", by.pids.len()))),
    }
}

/// Returns the display name of a kind of delay.
pub(super) fn kind(kind: HoldUp) -> &'static str {
    match kind {
        HoldUp::OwnWork => "its own long work",
        HoldUp::Lock => "kernel locks",
        kind => kind_name(kind),
    }
}
