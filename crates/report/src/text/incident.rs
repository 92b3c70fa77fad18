//! Pages about incidents: a directory's incidents grouped by signature, and one incident in detail.

use ticktax_model::beats::Periodicity;
use ticktax_model::incident::{
    Incident, IncidentGroup, IncidentList, IncidentSheet, LossCause, NotKept, RanInstead,
    Signature, TriggerKind,
};
use ticktax_model::utc::Utc;
use ticktax_model::victim::WaitPlace;
use ticktax_model::{Kind, Nanos};

use super::beats::with_interval;
use super::block::{Columns, Written};
use super::numbers::{bytes, counted, displayed, grouped};
use super::page::{Page, Tone, tied};
use super::sampled;
use super::stalls::{call_name, released};
use super::{Paged, TextStyle};

impl Paged for IncidentList {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        head(&mut page, self);
        for incidents in &self.groups {
            group(&mut page, incidents);
        }
        foot(&mut page, self);
        page.finish()
    }
}

impl Paged for IncidentSheet {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        let incident = &self.entry.incident;
        let at = Utc::from_unix_ms(incident.at_unix_ms);
        page.section(&format!("Incident {}, {at}", self.entry.number));
        let text = match (incident.kind, &*incident.text) {
            (TriggerKind::Mark, text) if !text.is_empty() => format!("marked by hand: {text}"),
            _ => sentence(incident),
        };
        page.paragraph(Tone::Plain, "", &format!("{text}."));
        details(&mut page, incident);
        if self.similar_count > 1 {
            let first = Utc::from_unix_ms(self.first_unix_ms);
            let place = format!(
                "{} of {} since {}",
                nth(self.position),
                counted(self.similar_count, "similar incident"),
                tied(first),
            );
            page.paragraph(Tone::Plain, "similar   ", &place);
        }
        if let Some(beat) = &self.beat {
            page.paragraph(Tone::Plain, "periodic  ", &every(beat));
        }
        page.paragraph(Tone::Plain, "recording ", &whereabouts(self));
        if let Some(path) = &self.path {
            page.command("  $ ", &format!("ticktax report {path}"));
        }
        page.finish()
    }
}

/// Describes an incident in one line for a terminal or a log: the thread, how long it did not run,
/// and what ran instead.
pub fn incident_line(incident: &Incident) -> String {
    let line = sentence(incident).replace('\u{a0}', " ");
    super::page::clean(&line)
}

fn head(page: &mut Page, list: &IncidentList) {
    let all = list.groups.iter().map(|group| group.count).sum();
    let title = format!("{} in {}", counted(all, "incident"), list.directory);
    let since = list.since_unix_ms.map(Utc::from_unix_ms);
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    page.section(&format!("{title}{since}"));
    if list.watched > Nanos::ZERO {
        let watched = format!("Watched for {}.", long(list.watched));
        page.paragraph(Tone::Faint, "", &watched);
    }
    if !list.groups.is_empty() {
        page.blank();
        page.headings(Tone::Strong, "COUNT  INCIDENT", &cells("total", "longest"));
    }
}

fn group(page: &mut Page, group: &IncidentGroup) {
    let name = signature(&group.signature);
    let times = if group.signature.kind.is_measured() {
        cells(&group.time.to_string(), &group.max.to_string())
    } else {
        cells("", "")
    };
    page.row(
        Tone::Plain,
        0,
        &format!("{:>5}  {name}", grouped(group.count)),
        &times,
    );
    let first = Utc::from_unix_ms(group.first_unix_ms);
    let when = if group.count == 1 {
        format!(
            "{}, {}",
            tied(first),
            tied(format!("incident {}", group.last_number))
        )
    } else {
        let last = Utc::from_unix_ms(group.last_unix_ms);
        let longest = if group.signature.kind.is_measured() {
            format!(
                ", longest: {}",
                tied(format!("incident {}", group.max_number))
            )
        } else {
            String::new()
        };
        format!(
            "{} to {}; latest: {}{longest}",
            tied(first),
            tied(last),
            tied(format!("incident {}", group.last_number))
        )
    };
    page.paragraph(Tone::Faint, INDENT, &when);
    if let [before @ .., _] = &*group.chain
        && !before.is_empty()
    {
        let steps: Vec<String> = before.iter().map(tied).collect();
        let seen = if group.chain_count < group.count {
            format!(" (in {} of them)", grouped(group.chain_count))
        } else {
            String::new()
        };
        let text = format!("{}{seen}", steps.join(" → "));
        let text = format!("triggered by {text}");
        page.paragraph(Tone::Faint, INDENT, &text);
    }
    for beat in &group.beats {
        page.paragraph(Tone::Plain, INDENT, &every(beat));
    }
}

/// Indent of the lines below a group's name.
const INDENT: &str = "       ";

/// Creates the cells for a group's total and longest time.
fn cells(total: &str, longest: &str) -> Columns {
    Columns::right([(8, total), (8, longest)])
}

/// Formats an ordinal number, such as `41st`.
fn nth(number: u64) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{suffix}", grouped(number))
}

fn foot(page: &mut Page, list: &IncidentList) {
    if !list.groups.is_empty() {
        page.blank();
        page.paragraph(
            Tone::Faint,
            "",
            "`ticktax incidents show N` explains incident N.",
        );
    }
    if list.not_kept.is_empty() && list.recovered == 0 && list.damaged_lines == 0 {
        return;
    }
    page.blank();
    for loss in &list.not_kept {
        page.paragraph(Tone::Warning, "", &lost(loss));
    }
    if list.recovered > 0 {
        let found = counted(list.recovered, "recording");
        let verb = if list.recovered == 1 { "is" } else { "are" };
        let text = format!("{found} {verb} missing from the index.");
        page.paragraph(Tone::Warning, "", &text);
    }
    if list.damaged_lines > 0 {
        let text = format!(
            "{} of the index cannot be read.",
            counted(list.damaged_lines, "line")
        );
        page.paragraph(Tone::Warning, "", &text);
    }
}

/// Describes incidents, recordings or triggers that were not kept, and why.
fn lost(lost: &NotKept) -> String {
    let (what, verb) = match lost.cause {
        LossCause::PerHour | LossCause::DiskFull | LossCause::NotWritten | LossCause::Killed => {
            ("incident", "without a recording")
        }
        LossCause::Count | LossCause::Bytes => ("old recording", "deleted"),
        LossCause::Suppressed => ("trigger", "not reported"),
        LossCause::IndexFull => ("old incident", "dropped"),
    };
    let count = counted(lost.count, what);
    format!("{count} {verb}: {}.", loss_reason(lost.cause))
}

/// Returns why something was not kept.
fn loss_reason(cause: LossCause) -> &'static str {
    match cause {
        LossCause::PerHour => "--max-per-hour was reached",
        LossCause::Count => "--max-count was reached",
        LossCause::Bytes => "--max-bytes was reached",
        LossCause::DiskFull => "the disk was full",
        LossCause::NotWritten => "it could not be written",
        LossCause::Killed => "the recorder was killed before writing it",
        LossCause::Suppressed => "too many to report each one",
        LossCause::IndexFull => "the index was full",
    }
}

/// Describes incidents, recordings or triggers that were not kept, and why, in one line for a
/// terminal.
pub fn not_kept_line(not_kept: &NotKept) -> String {
    lost(not_kept).replace('\u{a0}', " ")
}

/// Describes the signature, which is what similar incidents have in common.
fn signature(signature: &Signature) -> String {
    match (
        signature.kind,
        signature.program.as_str(),
        signature.culprit.as_str(),
    ) {
        (TriggerKind::Signal | TriggerKind::Mark, ..) => verb(signature.kind).to_owned(),
        (TriggerKind::Stretch, "", "") => "long run of the kernel".to_owned(),
        (TriggerKind::Stretch, "", by) => format!("{by} ran for long"),
        (TriggerKind::Stretch, who, by) => format!("{who} waited while {by} ran"),
        (TriggerKind::Gap, _, "") => "gap of a probe".to_owned(),
        (TriggerKind::Gap, _, by) => format!("gap of a probe: {by} ran"),
        (TriggerKind::Frame, who, by) if who == by && !by.is_empty() => {
            format!("{who} started a frame late after long work")
        }
        (kind, who, "") => format!("{who} {}", verb(kind)),
        (TriggerKind::Blocked, who, by) => format!("{who} blocked, woken by {by}"),
        (kind, who, by) => format!("{who} {} behind {by}", verb(kind)),
    }
}

/// Returns a verb phrase for what happened to the thread.
fn verb(kind: TriggerKind) -> &'static str {
    match kind {
        TriggerKind::Wait => "waited",
        TriggerKind::Late => "had a delayed wake-up",
        TriggerKind::Blocked => "was blocked",
        TriggerKind::Throttled => "was throttled",
        TriggerKind::Stretch => "ran for a long time",
        TriggerKind::Gap => "was interrupted",
        TriggerKind::Frame => "started a frame late",
        TriggerKind::Signal => "requested by a signal",
        TriggerKind::Mark => "marked by hand",
    }
}

/// Describes the incident in a sentence, without a full stop.
fn sentence(incident: &Incident) -> String {
    let text = what_happened(incident);
    match incident.above {
        None => text,
        Some(above) => {
            let limit = tied(above.limit);
            format!(
                "{text}; above the {} of the last hour, {limit}",
                above.percentile
            )
        }
    }
}

fn what_happened(incident: &Incident) -> String {
    let thread = incident.thread.as_ref();
    let who = thread.map(|thread| match (thread.name == thread.program, thread.tid) {
        (true, 0) => thread.name.clone(),
        (true, tid) => format!("{} ({tid})", thread.name),
        (false, tid) => format!("{}'s thread {} ({tid})", thread.program, thread.name),
    });
    let who = who.unwrap_or_else(|| "a thread".to_owned());
    let first = incident.ran.first();
    let lasted = tied(incident.lasted);
    let code = first.and_then(code_of).unwrap_or_default();
    let release = incident
        .place
        .as_ref()
        .and_then(|place| place.release.as_ref());
    let released = released(release);
    let on = incident.waited_on.or(incident.cpu);
    let whose = on.map_or_else(|| tied("a CPU"), |cpu| tied(format!("CPU {cpu}")));
    let on = on.map_or_else(String::new, |cpu| {
        format!(" on {}", tied(format!("CPU {cpu}")))
    });
    match incident.kind {
        TriggerKind::Wait | TriggerKind::Late => {
            let woken = if incident.kind == TriggerKind::Late {
                format!("{who} started running {lasted} after its wake-up{on}")
            } else {
                format!("{who} waited {lasted} for {whose}")
            };
            match first {
                Some(ran) if ran.kind == Kind::Idle => {
                    format!("{woken}; that CPU was idle for {}", tied(ran.time))
                }
                Some(ran) => {
                    let behind = format!("{} of it behind {}", tied(ran.time), named(ran));
                    format!("{woken}, {behind}{code}")
                }
                None => format!("{woken}; the cause was not traced"),
            }
        }
        TriggerKind::Blocked => {
            let by = incident.woken_by.as_ref();
            let by = by.map_or_else(String::new, |by| format!(", until {by} woke it"));
            let place = incident.place.as_ref();
            let place = place.map_or_else(|| " in the kernel".to_owned(), waited_in);
            format!("{who} was blocked{place} for {lasted}{by}{released}")
        }
        TriggerKind::Throttled => {
            format!("{who} was throttled for {lasted}: its cgroup used up its CPU quota")
        }
        TriggerKind::Stretch => {
            let what = first.map_or_else(|| "the kernel".to_owned(), named);
            let kept = thread.map_or_else(String::new, |_| format!(" while {who} waited"));
            format!("{what} ran on {whose} for {lasted} without a break{kept}{code}")
        }
        TriggerKind::Gap => {
            let what = match first {
                Some(ran) if ran.kind == Kind::Idle => {
                    format!("the CPU was idle for {}", tied(ran.time))
                }
                Some(ran) => {
                    format!(
                        "{}{code}",
                        tied(format!("{} ran for {}", named(ran), ran.time))
                    )
                }
                None => "the cause was not traced".to_owned(),
            };
            format!("a probe on {whose} was interrupted for {lasted}; {what}")
        }
        TriggerKind::Frame => {
            let on = incident.cpu.map(|cpu| tied(format!("CPU {cpu}")));
            let on = on.map_or_else(String::new, |cpu| format!(" on {cpu}"));
            let why = late_cause(incident);
            let is_main = first.is_some_and(|ran| ran.time >= incident.asleep);
            let code = if is_main { &*code } else { "" };
            format!("a frame of {who} started {lasted} late{on}: {why}{code}")
        }
        TriggerKind::Signal => "requested by a signal".to_owned(),
        TriggerKind::Mark if incident.text.is_empty() => "marked by hand".to_owned(),
        TriggerKind::Mark => format!("marked: {}", incident.text),
    }
}

/// Describes the code in which samples found what ran, or returns `None` if it is unknown.
fn code_of(ran: &RanInstead) -> Option<String> {
    let words = sampled::in_words(ran.code.as_ref()?)?;
    Some(format!(", {words}"))
}

/// Describes where a thread was blocked: " in FUNCTION <- CALLER <- SYSTEM CALL".
fn waited_in(place: &WaitPlace) -> String {
    let code = [&place.function, &place.caller];
    let code = code.into_iter().flatten().map(|name| &**name);
    let call = place.syscall.as_deref().map(call_name);
    let code: Vec<&str> = code.chain(call).collect();
    if code.is_empty() {
        return " in the kernel".to_owned();
    }
    format!(" in {}", tied(code.join(" <- ")))
}

/// Describes the main cause of a late frame. After the frame was due, the thread may have run and
/// waited on several CPUs.
fn late_cause(incident: &Incident) -> String {
    let pid = incident.thread.as_ref().map_or(0, |thread| thread.pid);
    let first = incident.ran.first();
    match first.filter(|ran| ran.time >= incident.asleep) {
        Some(ran) if pid > 0 && ran.pids.contains(&pid) => {
            format!("its own work took {}", tied(ran.time))
        }
        Some(ran) if ran.kind == Kind::Idle => {
            format!("wake-up latency; the CPU was idle for {}", tied(ran.time))
        }
        Some(ran) => tied(format!("{} ran instead for {}", named(ran), ran.time)),
        None if incident.asleep > Nanos::ZERO => {
            let asleep = tied(format!("asleep or blocked for {}", incident.asleep));
            match incident.overrun {
                Nanos::ZERO => format!("it was {asleep}"),
                overran => format!(
                    "the previous frame overran by {}, then the thread was {asleep}",
                    tied(overran)
                ),
            }
        }
        None => "the cause was not traced".to_owned(),
    }
}

/// Writes what ran instead of the thread and why, as far as the recording shows it.
fn details(page: &mut Page, incident: &Incident) {
    let asleep = incident.asleep > Nanos::ZERO;
    if incident.ran.len() + usize::from(asleep) > 1 || incident.others > Nanos::ZERO {
        let mut parts: Vec<String> = incident
            .ran
            .iter()
            .map(|ran| tied(format!("{} {}", named(ran), ran.time)))
            .collect();
        if incident.others > Nanos::ZERO {
            parts.push(tied(format!("others {}", incident.others)));
        }
        if asleep {
            parts.push(tied(format!("asleep or blocked {}", incident.asleep)));
        }
        page.paragraph(
            Tone::Plain,
            &format!("{:<10}", ran_label(incident)),
            &parts.join(", "),
        );
    }
    // Ignore small differences, because the clocks of the scheduler and the rows differ by a few
    // hundred ns.
    if incident.unseen > Nanos::from_micros(10) {
        let unseen = format!("unexplained {}", tied(incident.unseen));
        page.paragraph(Tone::Warning, "          ", &unseen);
    }
    if let (Some(by), true) = (&incident.woken_by, incident.kind != TriggerKind::Blocked) {
        let thread = incident.thread.as_ref().map(|thread| &*thread.name);
        let text = format!("{} was woken by {by}", thread.unwrap_or("the thread"));
        page.paragraph(Tone::Plain, "wake-up   ", &text);
    }
    if incident.chain.len() > 1 {
        let steps: Vec<String> = incident.chain.iter().map(tied).collect();
        page.paragraph(Tone::Plain, "cause     ", &steps.join(" → "));
    }
    if incident.triggers > 1 {
        let more = counted(incident.triggers - 1, "other trigger");
        let text = format!("{more} fired within a few seconds of this one");
        page.paragraph(Tone::Faint, "also      ", &text);
    }
    if incident.events_lost > 0 {
        let text = format!(
            "{}, so the recording is incomplete",
            counted(incident.events_lost, "event")
        );
        page.paragraph(Tone::Warning, "lost      ", &text);
    }
}

/// Returns the label for the list of what ran instead. A thread with a late frame may have waited
/// on several CPUs, or slept.
fn ran_label(incident: &Incident) -> String {
    let cpu = incident.waited_on.or(incident.cpu);
    match cpu.filter(|_| incident.kind != TriggerKind::Frame) {
        Some(cpu) => format!("CPU {cpu} ran "),
        None => "delay".to_owned(),
    }
}

/// Returns the name of what ran instead, with its pid if it was a single process.
fn named(ran: &RanInstead) -> String {
    match &*ran.pids {
        [] => displayed(&ran.name).to_owned(),
        [pid] => format!("{} ({pid})", ran.name),
        pids => format!("{} x{}", ran.name, pids.len()),
    }
}

/// Describes the period of a periodic cause in one line.
fn every(beat: &Periodicity) -> String {
    format!(
        "every {} (95 % CI), seen {} of {}",
        tied(with_interval(beat.period, beat.low, beat.high)),
        grouped(beat.seen),
        counted(beat.expected, "time")
    )
}

/// Describes where the recording of an incident is, or why it does not exist.
fn whereabouts(sheet: &IncidentSheet) -> String {
    match (&sheet.path, sheet.entry.not_kept) {
        (Some(_), _) => {
            let size = bytes(sheet.entry.bytes);
            format!("{size}; show it with:")
        }
        (None, Some(cause)) => format!("not kept: {}", loss_reason(cause)),
        (None, None) if sheet.entry.recording.is_some() && sheet.entry.bytes == 0 => {
            "not written yet".to_owned()
        }
        (None, None) => "deleted".to_owned(),
    }
}

/// Formats a time in seconds, minutes, hours or days.
fn long(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 2.0 * 86_400.0 => tied(format!("{:.1} days", s / 86_400.0)),
        s if s >= 2.0 * 3_600.0 => tied(format!("{:.1} h", s / 3_600.0)),
        s if s >= 120.0 => tied(format!("{:.1} min", s / 60.0)),
        s => tied(format!("{s:.0} s")),
    }
}
