//! The page and the section about periodic sources, with their periods and triggers.

mod first;

use ticktax_model::beats::{
    AliasLine, BeatGaps, BeatKind, BeatLine, BeatStatement, FollowsTick, HypervisorOrFirmware,
    SamePeriod,
};
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::Statement;

use crate::limitation::words;

use super::block::Written;
use super::numbers::{counted, cpu_names, displayed, grouped, percent};
use super::page::{Page, Tone, clean, elide, tied};
use super::{Paged, TextStyle};
use crate::view::{Section, View};

impl Paged for BeatStatement {
    fn page(&self, style: &TextStyle) -> Written {
        beats(self, style)
    }
}

/// Maximum number of periodic sources listed in a statement.
const SHOWN: usize = 12;
/// Number of significant digits in the half-width of a confidence interval.
const DIGITS: i32 = 2;

/// Title of the section.
pub(super) const TITLE: &str = "Periodic activity";

/// Writes a statement's section about periodic sources. Writes nothing if the analysis did not
/// search for them.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(beats) = &statement.beats else {
        return;
    };
    let all: Vec<&BeatLine> = beats.beats.iter().filter(|beat| !beat.by_ticktax).collect();
    if all.is_empty() && beats.searched == 0 {
        return;
    }
    page.section(TITLE);
    if all.is_empty() {
        let text = format!(
            "None found in {} over {}.",
            counted(beats.searched, "source"),
            tied(beats.window)
        );
        page.paragraph(Tone::Faint, "", &text);
        return;
    }
    let shown = if all.len() <= SHOWN + 1 {
        all.len()
    } else {
        SHOWN
    };
    for beat in &all[..shown] {
        entry(page, beat, false);
    }
    if all.len() > shown {
        let text = format!("{} more (ticktax beats)", all.len() - shown);
        page.paragraph(Tone::Faint, "  ", &text);
    }
    if all[..shown].iter().any(|beat| beat.gaps.is_some()) {
        page.legend(GAPS);
    }
}

/// Explanation of the gaps that count. A gap that yields time to one program can keep another
/// program waiting.
const GAPS: &str = "probe gaps: times when the probe did not run. Gaps in which a program ran are \
    included, although they are not a loss.";

/// Explanation of the fields in an entry.
const WORDS: &str = "every: the period and its 95 % CI. events seen: out of the number expected \
    from the period. takes: median length of an event. % of its CPUs' time: all events together. \
    first at: time since the start. triggered by: the chain in which each step woke, queued or \
    raised the next, as the kernel reported it, in at least four of five events. coinciding: two \
    other periods that together produce this one. on a fixed schedule: a late event does not delay \
    the next one. re-armed: it does. p: probability that chance alone produces this period. probe \
    gaps: times when the probe did not run, including those when a program ran.";

/// Renders the page for `ticktax beats`.
pub(super) fn beats(beats: &BeatStatement, style: &TextStyle) -> Written {
    if style.view == View::First {
        return first::first(beats, style);
    }
    let mut page = Page::new(*style);
    let legends = style.view.is_legend_only();
    if legends || style.view.shows(Section::Repeats) {
        all(&mut page, beats);
    }
    if style.view.shows(Section::Limits) {
        unknown(&mut page, beats);
    }
    page.finish()
}

/// Writes all the periodic sources found.
fn all(page: &mut Page, beats: &BeatStatement) {
    page.section(TITLE);
    let about = format!(
        "{} searched over {}. The chance of any false positive is under {}. ± is a 95 % CI.",
        counted(beats.searched, "source"),
        tied(beats.window),
        tied(whole_percent(beats.family_alarm)),
    );
    page.paragraph(Tone::Faint, "", &about);
    let (own, others): (Vec<&BeatLine>, Vec<&BeatLine>) =
        beats.beats.iter().partition(|beat| beat.by_ticktax);
    if others.is_empty() {
        page.paragraph(Tone::Plain, "", "No periodic source found.");
    }
    for beat in &others {
        entry(page, beat, true);
    }
    page.legend(WORDS);
    if !own.is_empty() {
        page.section("ticktax itself");
        for beat in &own {
            entry(page, beat, false);
        }
    }
}

/// Lists the sources that could not be searched for periods.
fn unknown(page: &mut Page, beats: &BeatStatement) {
    page.section("Limitations");
    if beats.limitations.is_empty() {
        page.paragraph(Tone::Good, "  ", "None: every source was searched.");
    }
    for limitation in &beats.limitations {
        page.paragraph(Tone::Plain, "  - ", &clean(&words(limitation).text()));
    }
}

/// Describes a periodic source on one line, for the live view.
pub fn beat_news(beat: &BeatLine, style: &TextStyle) -> String {
    let width = style.width.max(40);
    elide(
        &format!(
            "every {}: {} on {}",
            period(beat),
            beat_name(beat),
            cpu_names(beat.cpus.iter())
        ),
        width,
    )
    .replace(super::page::TIE, " ")
}

/// Writes an entry of a few lines about one periodic source.
fn entry(page: &mut Page, beat: &BeatLine, detailed: bool) {
    let cpus = cpu_names(beat.cpus.iter());
    let head = format!("every {}  {}", period(beat), beat_name(beat));
    page.row(Tone::Plain, 0, &head, &cpus);
    page.paragraph(Tone::Faint, "    ", &sizes(beat));
    if let Some(gaps) = &beat.gaps {
        page.paragraph(Tone::Faint, "    ", &gap_text(gaps, beat));
    }
    // The last step of the chain is the source itself, so leave it out.
    if let [before @ .., _] = &*beat.chain
        && !before.is_empty()
    {
        let steps: Vec<String> = before.iter().map(tied).collect();
        page.paragraph(Tone::Faint, "    triggered by ", &steps.join(" → "));
    }
    if let Some(tick) = &beat.follows_tick {
        page.paragraph(Tone::Faint, "    follows the tick: ", &follows_text(tick));
    }
    if !beat.ran_in_gaps.is_empty() {
        let names: Vec<String> = beat.ran_in_gaps.iter().map(tied).collect();
        page.paragraph(Tone::Faint, "    most of them contain ", &names.join(", "));
    }
    if let Some(alias) = &beat.alias {
        page.paragraph(Tone::Faint, "    coinciding: ", &arithmetic(alias));
    }
    if detailed {
        page.paragraph(Tone::Faint, "    ", &evidence(beat));
    }
}

pub(super) fn beat_name(beat: &BeatLine) -> String {
    match (beat.pid, &beat.gaps) {
        (Some(pid), _) => format!("{} ({pid})", beat.name),
        (None, Some(gaps)) if beat.kind == BeatKind::Gaps => {
            let noun = noun(gaps.probe);
            format!("{noun} ≥ {}", gaps.threshold)
        }
        (None, _) => displayed(&beat.name).to_owned(),
    }
}

/// Names the time that a source's share refers to.
fn time_of(beat: &BeatLine) -> &'static str {
    if beat.cpus.len() == 1 {
        "its CPU's time"
    } else {
        "its CPUs' time"
    }
}

/// Formats a share as a percentage, without decimals if they would be zero.
fn whole_percent(share: f64) -> String {
    let size = share * 100.0;
    if (size - size.round()).abs() < 1e-9 {
        format!("{size:.0} %")
    } else {
        percent(share)
    }
}

fn noun(probe: ProbeKind) -> &'static str {
    match probe {
        ProbeKind::Spin => "probe gaps",
        ProbeKind::Sleep => "probe wake-up delays",
    }
}

fn sizes(beat: &BeatLine) -> String {
    // A thread that is off its CPU uses no CPU time.
    let off = beat.kind == BeatKind::OffCpu;
    let (takes, share) = if off {
        let share = percent(beat.share * beat.cpus.len() as f64);
        ("lasts", format!("{share} of the time"))
    } else {
        let share = percent(beat.share);
        ("takes", format!("{share} of {}", time_of(beat)))
    };
    let mut parts = vec![
        tied(format!(
            "{} of {} events seen",
            grouped(beat.rhythm.seen),
            grouped(beat.rhythm.expected)
        )),
        tied(format!(
            "{takes} {}, {}max {}",
            beat.lengths.median,
            beat.lengths
                .p99
                .map_or_else(String::new, |p99| format!("p99 {p99}, ")),
            beat.lengths.max
        )),
        tied(share),
    ];
    if beat.events_per_period >= 1.5 {
        parts.push(tied(format!(
            "{:.1} events per burst",
            beat.events_per_period
        )));
    }
    if let Some((from, to)) = beat.active_range {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        parts.push(tied(format!("present from {from:.1} to {to:.1} s")));
    }
    parts.join(", ")
}

fn gap_text(gaps: &BeatGaps, beat: &BeatLine) -> String {
    let noun = noun(gaps.probe);
    let mut lengths = tied(format!("median {}", gaps.lengths.median));
    if let Some(p99) = gaps.lengths.p99 {
        lengths = format!("{lengths}, {}", tied(format!("p99 {p99}")));
    }
    let watched = format!(
        "{lengths}, {} of the watched time",
        tied(percent(gaps.share))
    );
    if beat.kind == BeatKind::Gaps {
        if let Some(outside) = &beat.hypervisor_or_firmware {
            return format!("{watched}; {}", outside_text(*outside, Some(beat)));
        }
        let others: Vec<String> = beat.same_period.iter().map(same_period).collect();
        return match &others[..] {
            [] => format!("{watched}; no traced source has this period"),
            others => format!("{watched}; {}", others.join("; ")),
        };
    }
    format!(
        "{} {noun} contain one of its events: {watched}; {} of its events are in such a gap",
        grouped(gaps.count),
        tied(percent(gaps.inside))
    )
}

/// Describes what share of a source's events start right after a tick.
fn follows_text(tick: &FollowsTick) -> String {
    format!(
        "{} of {} start within {} after a tick ({}). Wake-ups were not recorded.",
        grouped(tick.after),
        counted(tick.events, "event"),
        tied(tick.within),
        tied(format!("p ≤ {}", chance(tick.false_alarm)))
    )
}

/// Describes the cause of gaps during which the kernel ran nothing.
fn outside_text(outside: HypervisorOrFirmware, beat: Option<&BeatLine>) -> String {
    let every = beat.map_or_else(String::new, |beat| {
        format!(", every {}", tied(plain(beat.rhythm.period)))
    });
    match outside.host_hz {
        Some(hz) => format!(
            "hypervisor or firmware{every}; looks like a {} host tick",
            tied(format!("{hz} Hz"))
        ),
        None => format!("hypervisor or firmware{every}"),
    }
}

/// Describes a different source that has the same period but does not explain the gaps.
fn same_period(other: &SamePeriod) -> String {
    let name = tied(&other.name);
    match other.offset {
        Some(after) => format!("same period as {name}, {} after it", tied(after)),
        None => format!("same period as {name}"),
    }
}

fn arithmetic(alias: &AliasLine) -> String {
    let harmonic = |k: u32| {
        if k == 1 {
            "1".to_owned()
        } else {
            k.to_string()
        }
    };
    format!(
        "{} every {} and {} every {}: 1/|{}/{} − {}/{}| = {}",
        alias.first,
        tied(plain(alias.first_period)),
        alias.second,
        tied(plain(alias.second_period)),
        harmonic(alias.k),
        tied(plain(alias.first_period)),
        harmonic(alias.n),
        tied(plain(alias.second_period)),
        tied(plain(alias.period)),
    )
}

fn evidence(beat: &BeatLine) -> String {
    let kept = if beat.rhythm.rearmed {
        "re-armed at each event"
    } else {
        "on a fixed schedule"
    };
    let restarts = match beat.rhythm.phase_jumps {
        0 => String::new(),
        n => format!(", restarted {}", counted(n.into(), "time")),
    };
    format!(
        "first at {}, {kept}, {}{restarts}, {}",
        tied(format!("{:.6} s", beat.first.as_secs_f64())),
        tied(format!("jitter {}", beat.rhythm.jitter)),
        tied(format!("p ≤ {}", chance(beat.rhythm.false_alarm)))
    )
}

/// Formats a false-alarm probability.
fn chance(alarm: f64) -> String {
    if alarm < 1e-12 {
        "1e-12".to_owned()
    } else {
        format!("{alarm:.0e}")
    }
}

fn period(beat: &BeatLine) -> String {
    with_interval(beat.rhythm.period, beat.rhythm.low, beat.rhythm.high)
}

/// Formats a period in ns with its confidence interval, whose width determines the number of
/// digits.
pub(crate) fn with_interval(period: f64, low: f64, high: f64) -> String {
    let margin = 0.5 * (high - low).abs();
    let (scale, unit) = unit(period);
    let (value, margin) = (period / scale, margin / scale);
    if !margin.is_finite() || margin <= 0.0 {
        return plain(period);
    }
    // Limit the precision to a millionth of the unit.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a logarithm of a finite double"
    )]
    let digits = (DIGITS - 1 - margin.log10().floor() as i32).clamp(0, 6);
    let digits = usize::try_from(digits).unwrap_or(0);
    if margin < 0.5e-6 {
        return format!("{value:.digits$} ± <0.000001 {unit}");
    }
    format!("{value:.digits$} ± {margin:.digits$} {unit}")
}

/// Formats a period in ns for narrow columns, with about three digits and at most eight characters.
pub(super) fn short_period(ns: f64) -> String {
    // Choose the unit according to the rounded value: 99.98 ms becomes 100 ms, and 999.8 µs becomes
    // 1.00 ms.
    let (scale, unit) = unit(ns * 1.0005);
    let value = ns / scale;
    let digits = match value {
        v if v >= 99.95 => 0,
        // The unit `min` has three letters, so there is room for one digit less.
        v if v >= 9.995 && unit == "min" => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

fn unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        ns if ns < 600e9 => (1e9, "s"),
        _ => (60e9, "min"),
    }
}

/// Formats a period in ns with five digits and without a confidence interval.
fn plain(ns: f64) -> String {
    let (scale, unit) = unit(ns);
    let value = ns / scale;
    let digits = match value {
        v if v >= 100.0 => 2,
        v if v >= 10.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn periods_have_a_readable_unit_and_precision() {
        assert_eq!(plain(30.999e9), "30.999 s");
        assert_eq!(plain(4e6), "4.0000 ms");
        assert_eq!(plain(100_000.0), "100.00 µs");
        assert_eq!(plain(6_255e9), "104.25 min");
    }
}
