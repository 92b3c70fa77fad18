//! The first screen about periodic sources. It shows their periods, names, costs and triggers.

use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};

use super::{WORDS, beat_name, outside_text, plain, same_period, time_of, unknown, whole_percent};
use crate::text::TextStyle;
use crate::text::block::{Columns, Written};
use crate::text::numbers::{counted, cpu_names, grouped, percent};
use crate::text::page::{Page, TIE, Tone, elide, tied};
use crate::text::screen::{explained, fitted, narrowed};

/// Minimum page width for the column of event lengths.
const ROOMY: usize = 60;

/// Indent of the line that shows the cause of a period, below the source's name.
const CAUSE: usize = 14;

/// A level of detail.
#[derive(Clone, Copy)]
struct Room {
    /// Maximum number of periodic sources.
    rows: usize,
    /// Whether each source has a line that shows its trigger.
    causes: bool,
}

impl Room {
    const fn new(rows: usize, causes: bool) -> Self {
        Self { rows, causes }
    }
}

/// All levels of detail, in order of preference.
const ROOMS: [Room; 12] = [
    Room::new(16, true),
    Room::new(12, true),
    Room::new(10, true),
    Room::new(9, true),
    Room::new(8, true),
    Room::new(16, false),
    Room::new(14, false),
    Room::new(12, false),
    Room::new(10, false),
    Room::new(8, false),
    Room::new(4, false),
    Room::new(2, false),
];

/// Renders the first screen, which ends with a line break.
pub(super) fn first(beats: &BeatStatement, style: &TextStyle) -> Written {
    let text = fitted(&ROOMS, |room| with(beats, style, room));
    explained(text, WORDS, style)
}

fn with(beats: &BeatStatement, style: &TextStyle, room: Room) -> Written {
    let mut page = Page::new(narrowed(style));
    let (own, others): (Vec<&BeatLine>, Vec<&BeatLine>) =
        beats.beats.iter().partition(|beat| beat.by_ticktax);
    let mut others = others;
    others.sort_by(|a, b| {
        taken(b)
            .total_cmp(&taken(a))
            .then(cost(b).total_cmp(&cost(a)))
    });
    title(&mut page, beats, &others);
    if !others.is_empty() {
        table(&mut page, &others, room);
    }
    foot(&mut page, beats, &own, &others);
    page.finish()
}

/// Writes the title, with the number of periodic sources, the number of sources searched, and the
/// length of time searched.
fn title(page: &mut Page, beats: &BeatStatement, others: &[&BeatLine]) {
    let sources = counted(beats.searched, "source");
    let window = tied(beats.window);
    let verb = if others.len() == 1 { "is" } else { "are" };
    let found = format!(
        "{} of {sources} {verb} periodic (searched over {window}).",
        grouped(others.len() as u64)
    );
    let costliest = others.first();
    let text = match costliest {
        None => format!("None of {sources} is periodic (searched over {window})."),
        Some(beat) if taken(beat) == 0.0 => found,
        Some(beat) => format!(
            "{found} The costliest is {}, every {}: {} of {}.",
            beat_name(beat),
            tied(plain(beat.rhythm.period)),
            tied(percent(cost(beat))),
            time_of(beat),
        ),
    };
    page.paragraph(Tone::Strong, "", &text);
}

fn table(page: &mut Page, beats: &[&BeatLine], room: Room) {
    let Room { rows, causes } = room;
    let wide = page.width() >= ROOMY;
    let cells = |each: &str, share: &str, longest: &str| {
        if wide {
            Columns::right([(8, each), (7, share), (8, longest)])
        } else {
            Columns::right([(8, share)])
        }
    };
    let heading = cells("median", "% CPU", "max");
    page.headings(Tone::Strong, "PERIODIC", &heading);
    let shown = if beats.len() <= rows {
        beats.len()
    } else {
        rows
    };
    for beat in &beats[..shown] {
        let mut name = format!("{:>10}  {}", plain(beat.rhythm.period), beat_name(beat));
        if wide {
            name = format!("{name}  {}", cpu_names(beat.cpus.iter()));
        }
        let cells = cells(
            &beat.lengths.median.to_string(),
            &percent(cost(beat)),
            &beat.lengths.max.to_string(),
        );
        page.row(Tone::Plain, 2, &name.replace(TIE, " "), &cells);
        if let Some(cause) = cause(beat).filter(|_| causes) {
            if wide {
                page.paragraph(Tone::Faint, &" ".repeat(CAUSE), &cause);
            } else {
                let indent = CAUSE / 3;
                let cause = elide(&cause, page.width().saturating_sub(indent));
                page.line(Tone::Faint, &format!("{:indent$}{cause}", ""));
            }
        }
    }
    let left = beats.len() - shown;
    if left > 0 {
        let text = format!("{left} more (--section repeats)");
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

/// Returns the share of its CPUs' time that a source takes. For gaps, this is a share of the time
/// that the probe watched.
fn cost(beat: &BeatLine) -> f64 {
    match &beat.gaps {
        Some(gaps) if beat.kind == BeatKind::Gaps => gaps.share,
        _ => beat.share,
    }
}

/// Returns the share of its CPUs' time that a source provably takes from other work. A thread that
/// is off CPU takes none. A gap may have yielded time to a program, so gaps count only if they were
/// outside the kernel's control.
fn taken(beat: &BeatLine) -> f64 {
    match beat.kind {
        BeatKind::OffCpu => 0.0,
        BeatKind::Gaps if beat.hypervisor_or_firmware.is_none() => 0.0,
        _ => cost(beat),
    }
}

/// Returns a line that names the source's trigger or explains its period, or `None` if neither is
/// known.
fn cause(beat: &BeatLine) -> Option<String> {
    if let [before @ .., _] = &*beat.chain
        && !before.is_empty()
    {
        return Some(format!("triggered by {}", before.join(" → ")));
    }
    if beat.follows_tick.is_some() {
        return Some("follows the tick".to_owned());
    }
    if let Some(alias) = &beat.alias {
        let (first, second) = (plain(alias.first_period), plain(alias.second_period));
        let text = format!(
            "{} (every {first}) and {} (every {second}) coincide",
            alias.first, alias.second
        );
        return Some(text);
    }
    if let Some(outside) = &beat.hypervisor_or_firmware {
        // The line above shows the period.
        return Some(outside_text(*outside, None).replace(TIE, " "));
    }
    if let Some(same) = beat.same_period.first() {
        return Some(same_period(same).replace(TIE, " "));
    }
    if !beat.ran_in_gaps.is_empty() {
        return Some(format!(
            "most of them contain {}",
            beat.ran_in_gaps.join(", ")
        ));
    }
    let alone = beat.kind == BeatKind::Gaps;
    alone.then(|| "no traced source has this period".to_owned())
}

fn foot(page: &mut Page, beats: &BeatStatement, own: &[&BeatLine], others: &[&BeatLine]) {
    let mut parts = Vec::new();
    if !others.is_empty() && page.width() >= ROOMY {
        let text = "median, max: length of one event. % CPU: share of these CPUs' time, by which \
            rows are sorted.";
        parts.push(text.to_owned());
        if others.iter().any(|beat| beat.kind == BeatKind::Gaps) {
            let text = "Probe gaps (times when ticktax's probe did not run) come last if a \
                program may have caused them.";
            parts.push(text.to_owned());
        }
    }
    parts.push(format!(
        "Chance of any false positive: under {}.",
        tied(whole_percent(beats.family_alarm))
    ));
    if !own.is_empty() {
        parts.push(match own.len() as u64 {
            1 => "ticktax's own period is not shown.".to_owned(),
            many => format!("ticktax's own {} are not shown.", counted(many, "period")),
        });
    }
    if !beats.limitations.is_empty() {
        let unknown = counted(beats.limitations.len() as u64, "limitation");
        parts.push(format!("{unknown} (--section limits)."));
    }
    page.paragraph(Tone::Plain, "", &parts.join(" "));
    if beats.beats.is_empty() {
        unknown(page, beats);
    }
    let more = format!("More: --full, {}", tied("--section repeats,limits,legend"));
    page.more(&more);
}
