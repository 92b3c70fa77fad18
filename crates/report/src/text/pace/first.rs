//! The first screen about a paced loop. It shows whether the loop keeps its rate, how many frames
//! were lost, and why.

use ticktax_model::Nanos;
use ticktax_model::pace::{
    CpuClock, CpuStatement, Figures, LoopReport, PaceEnd, PaceRule, PaceStatement, RhythmReport,
    SleepMethod, Subject,
};
use ticktax_model::policy::{SchedulingPolicy, SpecialPolicy};
use ticktax_model::recording::World;
use ticktax_model::victim::{HoldUp, LateCause};

use super::{distributions, legend, lost_in_words, nothing, number, seconds, without_rhythm};
use crate::text::TextStyle;
use crate::text::block::{Columns, Written};
use crate::text::head;
use crate::text::late;
use crate::text::numbers::{counted, grouped, percent, quantile_or_blank, rate};
use crate::text::page::{Page, Tone, tied};
use crate::text::screen::{explained, fitted, narrowed};

/// A level of detail of the screen.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Maximum number of lines for frame rates.
    rates: usize,
    /// Whether empty lines separate the parts of the screen.
    spaced: bool,
    /// Maximum number of lines in the table of times. If it is 1, the causes that were ruled out
    /// are left out, too.
    times: usize,
}

const fn room(rates: usize, spaced: bool, times: usize) -> Room {
    Room {
        rates,
        spaced,
        times,
    }
}

/// All levels of detail, in order of preference.
const ROOMS: [Room; 10] = [
    room(6, true, 6),
    room(4, true, 6),
    room(4, false, 6),
    room(2, false, 6),
    room(1, false, 6),
    room(0, false, 6),
    room(0, false, 4),
    room(0, false, 3),
    room(0, false, 2),
    room(0, false, 1),
];
/// Minimum difference, as a share of CPU time, between what `top` shows and what the loop used for
/// the screen to mention it.
const WRONG: f64 = 0.01;
/// Minimum page width for the full table of times.
const TABLE: usize = 70;

/// Renders the first screen, which ends with a line break.
pub(super) fn first(statement: &PaceStatement, style: &TextStyle) -> Written {
    let text = fitted(&ROOMS, |room| with(statement, style, room));
    match &statement.figures {
        Some(figures) => explained(text, &legend(figures, &statement.subject), style),
        None => text,
    }
}

fn with(statement: &PaceStatement, style: &TextStyle, room: Room) -> Written {
    let mut page = Page::new(narrowed(style));
    headline(&mut page, statement);
    subject(&mut page, statement);
    if let Some(why) = &statement.ended_early {
        page.paragraph(Tone::Warning, "Ended early: ", &super::ended(why));
    }
    match &statement.figures {
        None => nothing(&mut page, statement),
        Some(figures) => {
            if room.spaced {
                page.blank();
            }
            times(&mut page, figures, room.times);
            if room.rates > 0 && figures.fps.len() > 1 {
                page.line(Tone::Strong, "FPS DISTRIBUTION (% of one-second intervals)");
                seconds(&mut page, figures, room.rates);
            }
            if room.spaced {
                page.blank();
            }
            dropped(&mut page, figures, &statement.subject);
            if let Some(late) = &statement.late {
                late::table(&mut page, late);
                // A narrow page does not fit on one screen anyway, so it has no need to save lines.
                if room.times > 1 || page.width() < TABLE {
                    late::ruled_out(&mut page, late);
                }
                late::possible_steal(&mut page, late);
            }
            cpu(&mut page, statement);
            next(&mut page, figures, statement);
        }
    }
    foot(&mut page, statement);
    page.finish()
}

/// Writes the loop's name or rate, followed by the verdict in capitals.
fn headline(page: &mut Page, statement: &PaceStatement) {
    let whose = match &statement.subject {
        Subject::Loop(report) => format!("{} Hz loop", number(report.spec.rate)),
        Subject::Process(report) => format!("{} ({})", report.name, report.pid),
    };
    let title = format!(
        "{whose}{} on {}, {}",
        head::in_world(statement.world),
        match &*statement.machine.host {
            "" => "this machine",
            host => host,
        },
        statement.elapsed,
    );
    let (tone, word) = match &statement.figures {
        None => (Tone::Warning, "NO FRAMES"),
        Some(figures) if late_slots(figures) > 0 => (Tone::Alarm, "LAGGING"),
        Some(_) => (Tone::Good, "OK"),
    };
    page.row(tone, 0, &title, &format!("  {word}"));
}

/// Returns the number of time slots that had no frame in time.
fn late_slots(figures: &Figures) -> u64 {
    figures.untimely()
}

/// Writes the number of frames and their rate, followed by the settings of the loop or the rhythm
/// of its thread.
fn subject(page: &mut Page, statement: &PaceStatement) {
    if let Some(figures) = &statement.figures {
        let mut parts = Vec::new();
        parts.extend(figures.average_fps.map(|fps| tied(format!("{fps:.2} FPS"))));
        parts.push(match figures.expected {
            Some(wanted) => format!(
                "{} of {}",
                tied(grouped(figures.frames)),
                counted(wanted, "frame")
            ),
            None => counted(figures.frames, "frame"),
        });
        parts.push(tied(format!("{} dropped", grouped(figures.dropped))));
        // Usually, a slot has no frame in time because its frame was dropped or slipped out of it.
        if figures.overshot != figures.dropped + figures.slipped.unwrap_or_default() {
            parts.push(format!(
                "{} without a frame in time",
                counted(figures.overshot, "slot")
            ));
        }
        parts.push(tied(format!(
            "{} started > {} late",
            grouped(figures.late),
            figures.late_threshold
        )));
        if let Some(slipped @ 1..) = figures.slipped {
            parts.push(tied(format!("{} lost to drift", grouped(slipped))));
        }
        page.paragraph(Tone::Strong, "", &parts.join(", "));
    }
    match &statement.subject {
        Subject::Loop(report) => {
            let hz = statement.machine.hz_configured;
            let tick = hz.map_or_else(String::new, |hz| {
                format!(", {}", tied(format!("{hz} Hz tick")))
            });
            let work = match report.spec.work {
                Nanos::ZERO => "no work".to_owned(),
                work => tied(format!("{work} of work")),
            };
            let text = format!(
                "{work} {}, {}, {}; {}, {}{tick}",
                tied("per frame"),
                tied(format!("--sleep {}", report.spec.sleep)),
                tied(format!("--rule {}", report.spec.rule)),
                tied(format!("CPU {}", report.cpu)),
                report.policy,
            );
            page.paragraph(Tone::Plain, "", &text);
        }
        Subject::Process(report) => {
            let chosen = report.chosen.and_then(|chosen| report.threads.get(chosen));
            let Some(thread) = chosen else {
                return;
            };
            let figures = statement.figures.as_ref();
            let rhythm = thread.periods.first().map_or_else(String::new, |rhythm| {
                let jitter = tied(rhythm.rhythm.jitter);
                format!(
                    ", {}, wake-up jitter {jitter}",
                    rate_in_words(rhythm, figures)
                )
            });
            let text = format!("Loop thread: {} ({}){rhythm}", thread.name, thread.tid);
            page.paragraph(Tone::Plain, "", &text);
            let busier = report.threads.iter();
            let mut busier =
                busier.filter(|other| other.periods.is_empty() && other.cpu > thread.cpu);
            if let Some(other) = busier.next() {
                let other = without_rhythm(other);
                let text = format!("a thread that uses more CPU time but is not periodic: {other}");
                page.paragraph(Tone::Warning, "Also: ", &text);
            }
        }
    }
}

/// Formats the rate that the loop would have without delays, which determines how many frames are
/// expected. If delays lower the average rate by more than 1 %, adds the average rate.
fn rate_in_words(found: &RhythmReport, figures: Option<&Figures>) -> String {
    let average = found.rhythm.period;
    let counted = figures
        .filter(|_| found.rhythm.rearmed)
        .map_or(average, |figures| figures.period.0 as f64);
    let hz = |period: f64| tied(format!("{:.3} Hz", 1e9 / period));
    if average < counted * 1.01 {
        return hz(counted);
    }
    format!("{} without delays, {} on average", hz(counted), hz(average))
}

/// Writes a table of the frames' times. A narrow page shows only the median and the maximum.
fn times(page: &mut Page, figures: &Figures, most: usize) {
    if page.width() >= TABLE {
        let heading = super::cells(["count", "median", "p90", "p99", "p99.9", "max"]);
        page.headings(Tone::Strong, "FRAMES", &heading);
        distributions(page, figures, most);
        return;
    }
    let cells = |median: &str, max: &str| Columns::right([(8, median), (8, max)]);
    page.headings(Tone::Strong, "FRAMES", &cells("median", "max"));
    for (name, distribution) in [
        (super::FRAME_TIME, &figures.frame_time),
        (super::START_DELAY, &figures.wait),
        ("wake-up latency", &figures.wakeup),
        ("start to end", &figures.busy),
    ] {
        if let Some(distribution) = distribution {
            let median = quantile_or_blank(distribution, 0.5);
            page.row(
                Tone::Plain,
                2,
                name,
                &cells(&median, &distribution.max.to_string()),
            );
        }
    }
}

/// Writes why frames were dropped.
fn dropped(page: &mut Page, figures: &Figures, subject: &Subject) {
    let mut parts = lost_in_words(figures, subject);
    // The advice below explains what drift is.
    if let (Some(1..), Some(last)) = (figures.slipped, parts.last_mut())
        && let Some((lost, _)) = last.split_once(": ")
    {
        *last = lost.to_owned();
    }
    if !parts.is_empty() {
        page.paragraph(Tone::Plain, "Dropped: ", &format!("{}.", parts.join("; ")));
    }
}

/// Writes the loop's CPU time according to its most accurate clock, and the busy share of its CPUs
/// according to `top`.
fn cpu(page: &mut Page, statement: &PaceStatement) {
    let mut parts = Vec::new();
    let mut readings = statement.cpu.readings.iter();
    let own = readings.next();
    if let Some(own) = own {
        parts.push(tied(format!(
            "the loop used {} of a CPU",
            percent(own.time.share_of(own.elapsed))
        )));
    }
    let machine = |reading: &&ticktax_model::pace::CpuReading| reading.clock == CpuClock::Machine;
    if let (Some(own), Some(shown)) = (own, readings.find(machine)) {
        let used = own.time.share_of(own.elapsed);
        // The counter can include one tick more than fits into the interval, but `top` never shows
        // more than 100 %.
        let busy = shown.time.share_of(shown.elapsed).min(1.0);
        let pointer = tied("(--section accounting)");
        let wrong = if used - busy > WRONG {
            "the loop alone used more"
        } else if busy - used > WRONG {
            "other tasks count, too, and ticks that hit the loop count in full"
        } else {
            ""
        };
        if !wrong.is_empty() {
            let shown = tied(format!("`top` showed {}", percent(busy)));
            parts.push(format!(
                "{shown} for all tasks on {}: {wrong} {pointer}",
                cpu_noun(statement)
            ));
        }
    }
    if let Some(wakeups) = &statement.wakeups {
        let rate = rate(wakeups.count, wakeups.elapsed);
        if !rate.is_empty() {
            parts.push(tied(format!("{rate} wake-ups/s")));
        }
    }
    if !parts.is_empty() {
        page.paragraph(Tone::Plain, "CPU use: ", &parts.join("; "));
    }
}

fn cpu_noun(statement: &PaceStatement) -> &'static str {
    if statement.cpu.cpus.len() == 1 {
        "its CPU"
    } else {
        "its CPUs"
    }
}

/// Returns whether other work used more than half of the time on the loop's CPU.
fn crowded(cpu: &CpuStatement) -> bool {
    let share = |clock| {
        let mut readings = cpu.readings.iter();
        let reading = readings.find(|reading| reading.clock == clock)?;
        Some(reading.time.share_of(reading.elapsed))
    };
    let all = share(CpuClock::Machine);
    let own = share(CpuClock::Thread);
    all.zip(own).is_some_and(|(all, own)| all - own > 0.5)
}

/// Writes what to do, starting with the cause of most late frames.
fn next(page: &mut Page, figures: &Figures, statement: &PaceStatement) {
    let advice = advice(figures, statement);
    if let [(text, command)] = &*advice {
        page.paragraph(Tone::Strong, "WHAT TO DO: ", text);
        if let Some(command) = command {
            page.command("  $ ", command);
        }
        return;
    }
    for (number, (text, command)) in (1..).zip(&advice) {
        if number == 1 {
            page.line(Tone::Strong, "WHAT TO DO");
        }
        page.paragraph(Tone::Strong, &format!("  {number}. "), text);
        if let Some(command) = command {
            page.command("     $ ", command);
        }
    }
    if advice.is_empty() {
        page.paragraph(
            Tone::Good,
            "WHAT TO DO: ",
            "Nothing to change: no frame was dropped or late.",
        );
    }
}

/// Returns pieces of advice, each with its command, if any.
fn advice(figures: &Figures, statement: &PaceStatement) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    let late = late_slots(figures) > 0;
    match &statement.subject {
        Subject::Loop(report) => {
            let drifts = figures.slipped.is_some_and(|slipped| slipped > 0)
                && report.spec.rule != PaceRule::Deadline;
            let delayed = figures.late + figures.dropped > 0;
            if late && crowded(&statement.cpu) {
                let text = "Find out which other work keeps its CPU busy, or use another CPU.";
                let command = format!("ticktax audit --cpus {}", report.cpu);
                all.push((text.to_owned(), Some(command)));
            } else if drifts && delayed {
                let text = "Audit its CPU while the loop runs, to see what delayed the frames.";
                let command = format!("ticktax audit --cpus {}", report.cpu);
                all.push((text.to_owned(), Some(command)));
            } else if late && !drifts {
                let text = "Compare ways to sleep on this kernel.";
                all.push((text.to_owned(), Some(other_sleeps(report, figures))));
            }
            if drifts {
                all.push(without_drift(report, figures));
            }
        }
        Subject::Process(report) if late => {
            let causes = statement.late.iter().flat_map(|late| &late.causes);
            all.extend(
                causes
                    .take(1)
                    .filter_map(|cause| keep_off(cause, statement)),
            );
            let aim = match &statement.late {
                Some(late) if !late.causes.is_empty() => "to see when its longest delays occurred",
                _ => "to see what delayed it",
            };
            // A command cannot name a process that has exited.
            let ended = matches!(statement.ended_early, Some(PaceEnd::ProcessExited { .. }));
            all.push(if ended {
                let under = tied("`ticktax audit`");
                (format!("Restart it under {under} {aim}."), None)
            } else {
                let command = format!("ticktax audit --pid {}", report.pid);
                (format!("Audit it {aim}."), Some(command))
            });
        }
        Subject::Process(_) => {}
    }
    all
}

/// Returns the advice about a program that made frames late, or `None` if the cause is something
/// else.
fn keep_off(cause: &LateCause, statement: &PaceStatement) -> Option<(String, Option<String>)> {
    let by = cause
        .culprit
        .as_ref()
        .filter(|_| cause.kind == HoldUp::Waiting)?;
    let [pid] = *by.pids else {
        return None;
    };
    let all = statement.late.as_ref()?.frames;
    let cpus = tied(statement.cpu.cpus.named());
    let is_first = cause.policy.is_some_and(SpecialPolicy::goes_first);
    // Whether a nice value helps depends on the groups of both programs, which only an audit knows.
    let lower = if is_first {
        " or lower its priority"
    } else {
        ""
    };
    let text = format!(
        "Keep {} off {cpus}{lower}: it caused {} of {}.",
        late::name(cause),
        tied(grouped(cause.frames)),
        counted(all, "late frame"),
    );
    let command =
        (is_first && statement.world == World::Live).then(|| format!("chrt -a -o -p 0 {pid}"));
    Some((text, command))
}

/// Returns the advice to use a rule under which a delay does not shift later frames.
fn without_drift(report: &LoopReport, figures: &Figures) -> (String, Option<String>) {
    let text = format!(
        "Use {}. With {}, each delay shifts all later frames.",
        tied("--rule deadline"),
        tied(format!("--rule {}", report.spec.rule)),
    );
    let sleep = match report.spec.sleep {
        // `nanosleep` is the default, so it needs no option.
        SleepMethod::Nanosleep => None,
        sleep => Some(format!("--sleep {sleep}")),
    };
    let rule = "--rule deadline".to_owned();
    (text, Some(again(report, figures, [sleep, Some(rule)])))
}

/// Returns the command that compares ways to sleep.
fn other_sleeps(report: &LoopReport, figures: &Figures) -> String {
    let rule = match report.spec.rule {
        // `deadline` is the default, so it needs no option.
        PaceRule::Deadline => None,
        rule => Some(format!("--rule {rule}")),
    };
    let vary = "--vary sleep=nanosleep,timerfd,hybrid".to_owned();
    again(report, figures, [rule, Some(vary)])
}

/// Returns the command that runs the loop again with the options in `changed`. A line never breaks
/// between an option and its value.
fn again(report: &LoopReport, figures: &Figures, changed: [Option<String>; 2]) -> String {
    let spec = &report.spec;
    let mut words = vec![
        "ticktax pace".to_owned(),
        format!("--rate {}", number(spec.rate)),
        format!("--work {}", spec.work.exact()),
        format!("--cpu {}", report.cpu),
    ];
    let policy = report.policy.requested;
    words.extend((policy != SchedulingPolicy::Other).then(|| format!("--policy {policy}")));
    let overshot = figures.overshot_threshold;
    words.extend(overshot.map(|from| format!("--overshot-from {}", from.exact())));
    words.extend(changed.into_iter().flatten());
    let words: Vec<String> = words.into_iter().map(tied).collect();
    words.join(" ")
}

fn foot(page: &mut Page, statement: &PaceStatement) {
    if let Subject::Loop(report) = &statement.subject
        && report.frames_lost > 0
    {
        let text = format!(
            "{} overran the buffer and are missing from all figures.",
            counted(report.frames_lost, "frame")
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    let unseen = statement.limitations.len() as u64;
    if unseen > 0 {
        let text = format!("{} (--section limits).", counted(unseen, "limitation"));
        page.paragraph(Tone::Warning, "", &text);
    }
    let more = format!(
        "More: --full, {}",
        tied("--section frames,accounting,limits,legend")
    );
    page.more(&more);
}
