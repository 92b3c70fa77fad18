//! The section about what a probe's gaps consist of, by cause.

use ticktax_model::Nanos;
use ticktax_model::recording::{Level, ProbeKind, ProbeReport};
use ticktax_model::statement::{
    EntryExitBound, GapCause, GapParts, GapStatement, Statement, WorstGap,
};
use ticktax_model::witness::{CpuProof, Doubt, Proof};

use super::cells::{Cells, Scale, by_name};
use super::numbers::{
    OUTSIDE, counted, cpu_names, displayed, percent, percent_of_success, rate, rough_or_blank,
    time_or_blank,
};
use super::page::{Page, Tone, tied};
use super::untraced::Untraced;
use super::wall;

/// Maximum number of causes shown by name.
const CAUSES: usize = 8;
/// Maximum number of gaps in the list of the longest gaps.
const WORST: usize = 5;
/// Maximum number of activities named for each of the longest gaps.
const THINGS: usize = 4;
/// Maximum number of kernel entries and exits to describe that took longer than their bound.
const BOUNDS: usize = 3;
/// Maximum share of the gap time that may be unexplained before the page shows a warning.
const TOLERABLE: f64 = 0.01;

/// Writes the section. Writes nothing if no probe ran.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(gaps) = &statement.gaps else {
        return;
    };
    let spin = gaps.probe == ProbeKind::Spin;
    page.section(if spin {
        "CPU noise (spin probe)"
    } else {
        "Wake-up latency (sleep probe)"
    });
    let probes: Vec<&ProbeReport> = statement
        .probes
        .iter()
        .filter(|probe| probe.probe == gaps.probe)
        .collect();
    if let Some(about) = about(&probes, spin) {
        page.paragraph(Tone::Faint, "", &about);
    }
    if [&gaps.long, &gaps.short, &gaps.yielded]
        .iter()
        .all(|parts| parts.gaps.count == 0)
    {
        let nothing = if spin { "No gaps" } else { "No late wake-ups" };
        page.paragraph(
            Tone::Good,
            "",
            &format!("{nothing} in {}.", tied(gaps.watched)),
        );
        return;
    }
    let scale = Scale {
        whole: gaps.watched,
        wall: wall(statement),
    };
    page.headings(Tone::Faint, "", &Cells::headings().columns());
    let (noun, title) = if spin {
        ("gaps", "Gaps")
    } else {
        ("delays", "Delays")
    };
    let floor = GapStatement::FLOOR;
    let named = if spin {
        "named kernel work"
    } else {
        "named work"
    };
    let long = format!("{title} of {floor} or more");
    all_parts(page, &long, named, &gaps.long, scale);
    if gaps.short.gaps.count > 0 {
        let cells = scale.cells(gaps.short.time, &gaps.short.gaps);
        page.row(Tone::Plain, 0, &format!("Shorter {noun}"), &cells.columns());
    }
    if gaps.yielded.gaps.count > 0 {
        let cells = scale.cells(gaps.yielded.time, &gaps.yielded.gaps);
        page.row(Tone::Faint, 0, "A program ran (no noise)", &cells.columns());
    }
    explained(page, gaps, statement, noun);
    proofs(page, &gaps.proofs);
    bounds(page, &gaps.entry_exit);
    causes_of(page, &gaps.causes, noun, scale);
    let all = gaps.yielded.gaps.count == 0;
    worst(page, &gaps.longest, noun, all);
}

/// Describes the settings of the probes. Returns `None` if no probe ran.
fn about(probes: &[&ProbeReport], spin: bool) -> Option<String> {
    let first = probes.first()?;
    let names = cpu_names(probes.iter().map(|probe| probe.cpu));
    let cpus = match probes.len() {
        1 => names,
        _ => format!("each of {names}"),
    };
    // The probes' figures differ slightly. Show the worst ones, because they hold for every probe.
    let period = tied(probes.iter().map(|probe| probe.period).max()?);
    let threshold = tied(probes.iter().map(|probe| probe.threshold).max()?);
    let policy = &first.policy;
    Some(if spin {
        format!(
            "A loop that only reads the clock runs on {cpus} under {policy}. One iteration takes \
             {period}; an iteration of {threshold} or more is recorded as a gap. share: of the \
             watched time."
        )
    } else {
        format!(
            "A thread on {cpus} under {policy} sleeps for {period} at a time, with a \
             timer slack of {threshold}. share: of the watched time."
        )
    })
}

/// Writes a sentence about what share of the gap time is explained.
fn explained(page: &mut Page, gaps: &GapStatement, statement: &Statement, noun: &str) {
    let long = &gaps.long;
    if long.gaps.count == 0 {
        return;
    }
    let rest = long.unexplained.share_of(long.time);
    let tone = if rest > TOLERABLE {
        Tone::Warning
    } else {
        Tone::Plain
    };
    let share = tied(percent_of_success(long.coverage()));
    let unknown = match long.unexplained {
        Nanos(..=0) => String::new(),
        time if statement.level == Level::Proc => format!(
            "; {} cannot be attributed from /proc: {}",
            tied(time),
            Untraced::from_statement(statement).remedy("run as root to see what ran")
        ),
        time => format!("; {} has no known cause", tied(time)),
    };
    let text = format!("{share} of the time in these {noun} is explained{unknown}.");
    page.paragraph(tone, "", &text);
}

/// Writes what empty gaps prove. In an empty gap, the kernel ran nothing. CPUs with the same
/// conclusion share a sentence.
fn proofs(page: &mut Page, proofs: &[CpuProof]) {
    let mut left: Vec<&CpuProof> = proofs.iter().collect();
    while let Some(first) = left.first().copied() {
        let is_alike =
            |other: &&CpuProof| other.proof == first.proof && other.doubts == first.doubts;
        let cpus = cpu_names(left.iter().copied().filter(is_alike).map(|proof| proof.cpu));
        left.retain(|other| !is_alike(other));
        let doubts: Vec<String> = first.doubts.iter().map(|&doubt| doubted(doubt)).collect();
        let reasons = doubts.join(", ");
        let text = match first.proof {
            Proof::Proven => format!(
                "{cpus}: gaps without kernel activity provably went to the hypervisor or firmware. \
                 Every kind of kernel entry was traced or, according to the kernel's counters, did \
                 not occur, and these counters agree with the trace."
            ),
            Proof::Bounded(unseen) => format!(
                "{cpus}: a gap without traced activity went to the hypervisor or firmware, or was \
                 {} not traced ({reasons}). The {} counted as unexplained.",
                if unseen == 1 {
                    "a kernel entry that was".to_owned()
                } else {
                    format!("one of at most {unseen} kernel entries that were")
                },
                if unseen == 1 {
                    "longest is".to_owned()
                } else {
                    format!("{unseen} longest are")
                }
            ),
            Proof::Unproven => format!(
                "{cpus}: a gap without traced activity proves nothing ({reasons}) and counts as \
                 unexplained."
            ),
            Proof::Unconfirmed => continue,
        };
        page.paragraph(Tone::Faint, "", &text);
    }
}

fn doubted(doubt: Doubt) -> String {
    match doubt {
        Doubt::EntriesNotWatched => "not every kernel entry was watched".to_owned(),
        Doubt::EventsLost { events } => format!("{} lost", counted(events, "event")),
        Doubt::NoTimes => "rows have no times".to_owned(),
        Doubt::ClocksNotAligned => "the clocks are not aligned well enough".to_owned(),
        Doubt::SwitchesNotReported { count } => {
            format!(
                "{} not reported",
                counted_plural(count, "switch", "switches")
            )
        }
        Doubt::PageFaults { count } => format!("{} of the probe", counted(count, "page fault")),
        Doubt::InterruptsNotTraced { count } => {
            format!("{} without a tracepoint", counted(count, "interrupt"))
        }
        Doubt::BpfProgramsSkipped { count } => {
            format!("{} of the tracer skipped", counted(count, "run"))
        }
    }
}

fn counted_plural(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Writes which kernel entries and exits took longer than their bound, and how much longer.
fn bounds(page: &mut Page, bounds: &[EntryExitBound]) {
    let beyond: Vec<&EntryExitBound> = bounds.iter().filter(|b| b.beyond_count > 0).collect();
    if beyond.is_empty() {
        return;
    }
    let moved = |bound: &&EntryExitBound| {
        format!(
            "{} around {} (median {}, bound {}, total excess {})",
            counted(bound.beyond_count, "gap"),
            bound.account,
            tied(bound.median),
            tied(bound.bound),
            tied(bound.beyond)
        )
    };
    let named: Vec<String> = beyond.iter().take(BOUNDS).map(moved).collect();
    let others = &beyond[named.len()..];
    let more = if others.is_empty() {
        String::new()
    } else {
        let time: Nanos = others.iter().map(|bound| bound.beyond).sum();
        let others = counted(others.len() as u64, "other");
        format!("; around {others} {}", tied(time))
    };
    let text = format!(
        "Kernel entry and exit took longer than the upper bound for this machine in {}{more}. The \
         excess counts as unexplained or as {OUTSIDE}.",
        named.join("; ")
    );
    page.paragraph(Tone::Faint, "", &text);
}

/// Writes a line for all gaps, and a line for each part of their time.
fn all_parts(page: &mut Page, name: &str, named: &str, parts: &GapParts, scale: Scale) {
    let sum = scale.cells(parts.time, &parts.gaps);
    page.row(Tone::Strong, 0, name, &sum.columns());
    for (name, time, tone) in [
        (named, parts.named, Tone::Plain),
        ("kernel entry and exit", parts.entry_exit, Tone::Plain),
        (OUTSIDE, parts.hypervisor_or_firmware, Tone::Plain),
        ("unexplained", parts.unexplained, Tone::Warning),
    ] {
        if time != Nanos::ZERO {
            let cells = Cells::from_time(time, scale.whole);
            page.row(tone, 2, name, &cells.columns());
        }
    }
}

fn causes_of(page: &mut Page, causes: &[GapCause], noun: &str, scale: Scale) {
    if causes.is_empty() {
        return;
    }
    page.line(Tone::Strong, &format!("Causes of the {noun}"));
    let (shown, others) = causes.split_at(by_name(causes.len(), CAUSES));
    for cause in shown {
        let cells = Cells {
            rate: rate(cause.count, scale.wall),
            median: rough_or_blank(cause.median),
            max: time_or_blank(cause.max),
            ..Cells::from_time(cause.time, scale.whole)
        };
        page.row(Tone::Plain, 2, displayed(&cause.name), &cells.columns());
    }
    if !others.is_empty() {
        let sums = |cause: &GapCause| (cause.time, cause.count, cause.max);
        let cells = scale.others(others.iter().map(sums));
        let name = counted(others.len() as u64, "other");
        page.row(Tone::Plain, 2, &name, &cells.columns());
    }
}

/// Lists the longest gaps in which no program ran. `all` is `true` if no program ran in any gap, so
/// that these are simply the longest gaps.
fn worst(page: &mut Page, worst: &[WorstGap], noun: &str, all: bool) {
    if worst.is_empty() {
        return;
    }
    let shown = &worst[..worst.len().min(WORST)];
    let which = if all { "" } else { " without a program" };
    let title = format!("Longest {noun}{which}, and what they contain (at: time since the start)");
    page.line(Tone::Strong, &title);
    for gap in shown {
        let label = format!(
            "  {:>8}  on CPU {} at {:.6} s: ",
            gap.length.to_string(),
            gap.cpu,
            gap.at.as_secs_f64()
        );
        page.place(gap.moment());
        page.paragraph(Tone::Plain, &label, &contents(gap));
    }
}

fn contents(gap: &WorstGap) -> String {
    let mut named: Vec<String> = gap
        .parts
        .iter()
        .take(THINGS)
        .map(|part| {
            let times = if part.count > 1 {
                format!(" ({} times)", part.count)
            } else {
                String::new()
            };
            format!(
                "{} {}{}",
                displayed(&part.name),
                tied(part.time),
                tied(times)
            )
        })
        .collect();
    if gap.parts.len() > THINGS {
        named.push(format!("{} more", gap.parts.len() - THINGS));
    }
    if gap.parts.is_empty() {
        return "no known activity".to_owned();
    }
    let rest = gap.length - gap.parts.iter().map(|part| part.time).sum();
    if rest > Nanos::ZERO {
        let share = percent(rest.share_of(gap.length));
        named.push(format!("the rest {}", tied(format!("{rest} ({share})"))));
    }
    named.join(", ")
}
