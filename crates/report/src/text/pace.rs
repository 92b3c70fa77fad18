//! The page about a paced loop. It shows what happened to the loop's frames, and how much CPU time
//! they took.

mod cost;
mod first;

use ticktax_model::Nanos;
use ticktax_model::histogram::Bucket;
use ticktax_model::limitation::Limitation;
use ticktax_model::pace::{
    Distribution, Figures, LoopReport, PaceEnd, PaceRule, PaceStatement, ProcessReport,
    RhythmReport, Subject, ThreadReport,
};

use crate::limitation::words;

use super::beats::with_interval;
use super::block::{Columns, Written};
use super::late;
use super::numbers::{counted, date, grouped, percent, quantile_or_blank};
use super::page::{Page, Tone, clean, tied};
use super::{Paged, TextStyle};
use super::{foot, head};
use crate::view::{Section, View};

impl Paged for PaceStatement {
    fn page(&self, style: &TextStyle) -> Written {
        pace(self, style)
    }
}

/// Length of the longest bar, in columns.
const BAR: usize = 40;
/// Maximum number of histogram buckets with their own line.
const BUCKETS: usize = 16;
/// Number of rows in the complete table of times.
const ROWS: usize = 6;
/// Maximum number of threads to name.
const THREADS: usize = 6;
/// Name for the time from when a frame is due until its work ends.
const FRAME_TIME: &str = "due time to end";
/// Name for the time from when a frame is due until it starts.
const START_DELAY: &str = "due time to start";

/// Renders the page about a paced loop, which ends with a line break.
pub(super) fn pace(statement: &PaceStatement, style: &TextStyle) -> Written {
    let view = style.view;
    if view == View::First {
        return first::first(statement, style);
    }
    let mut page = Page::new(*style);
    let legends = view.is_legend_only();
    if view == View::Full {
        title(&mut page, statement);
    }
    if legends || view.shows(Section::Frames) {
        subject_lines(&mut page, statement);
        match &statement.figures {
            Some(figures) => frames(&mut page, figures, &statement.subject),
            None => nothing(&mut page, statement),
        }
        if let Some(late) = &statement.late {
            page.section("Causes of late frames");
            late::table(&mut page, late);
            late::ruled_out(&mut page, late);
            late::possible_steal(&mut page, late);
        }
    }
    if view.shows(Section::Accounting) {
        cost::write(&mut page, statement);
    }
    if view.shows(Section::Limits) {
        if statement.limitations.is_empty() && view != View::Full {
            page.section("Limitations");
            let text = match &statement.subject {
                Subject::Process(_) => "None: no event was lost.",
                Subject::Loop(report) if report.frames_lost == 0 => {
                    "The kernel was not traced. No frame was lost."
                }
                Subject::Loop(_) => "The kernel was not traced.",
            };
            page.paragraph(Tone::Good, "  ", text);
        }
        limitations(&mut page, &statement.limitations);
    }
    page.finish()
}

/// Writes the settings of the loop, or the rhythm of the watched thread, and why the measurement
/// ended early, if it did.
fn subject_lines(page: &mut Page, statement: &PaceStatement) {
    match &statement.subject {
        Subject::Loop(report) => own_loop(page, report),
        Subject::Process(report) => process(page, report, statement.figures.as_ref()),
    }
    if let Some(why) = &statement.ended_early {
        page.paragraph(Tone::Warning, "Ended     ", &ended(why));
    }
}

/// Describes why the measurement ended early.
pub(super) fn ended(why: &PaceEnd) -> String {
    match why {
        PaceEnd::Failed { failure } => foot::failure(failure),
        PaceEnd::ProcessExited { pid } => format!("process {pid} exited"),
        PaceEnd::Interrupted => "interrupted".to_owned(),
        PaceEnd::InterruptedInTurn { turn, turns } => {
            format!("interrupted in run {turn} of {turns}")
        }
    }
}

/// Lists the limitations. Writes nothing if the list is empty.
pub(super) fn limitations(page: &mut Page, limitations: &[Limitation]) {
    if limitations.is_empty() {
        return;
    }
    page.section("Limitations");
    for limitation in limitations {
        let text = words(limitation).text();
        page.paragraph(Tone::Warning, "  - ", &clean(&text));
    }
}

/// Formats a line like those on a game server's console. It shows the frames in the last second,
/// and the total numbers of time slots without a frame (dropped) and without a frame in time
/// (overshot).
pub fn pace_line(fps: Option<u64>, dropped: u64, overshot: u64) -> String {
    let fps = fps.map_or_else(|| "-".to_owned(), |fps| fps.to_string());
    format!("FPS {fps} [dropped {dropped}, overshot {overshot}]")
}

fn title(page: &mut Page, statement: &PaceStatement) {
    let whose = match &statement.subject {
        Subject::Loop(_) => "a loop".to_owned(),
        Subject::Process(report) => format!("{} ({})", report.name, report.pid),
    };
    let title = format!(
        "ticktax: pace of {whose}{} over {}, started {}",
        head::in_world(statement.world),
        statement.elapsed,
        date(statement.began_unix)
    );
    page.line(Tone::Strong, &title);
    head::host(page, &statement.machine);
}

/// Formats a number without trailing zeros.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn rule_in_words(rule: PaceRule) -> &'static str {
    match rule {
        PaceRule::Fixed => {
            "fixed: a frame is due one period after the work of the previous one \
            ended"
        }
        PaceRule::Remaining => {
            "remaining: a frame is due one period after the previous one \
            started"
        }
        PaceRule::Deadline => {
            "deadline: frames are due on a fixed grid, regardless of earlier \
            delays"
        }
    }
}

fn own_loop(page: &mut Page, report: &LoopReport) {
    let text = format!(
        "{} per second, one every {}, each with {} of work; on {}, {}",
        number(report.spec.rate),
        tied(report.spec.period),
        tied(report.spec.work),
        tied(format!("CPU {}", report.cpu)),
        report.policy,
    );
    page.paragraph(Tone::Plain, "Frames    ", &text);
    page.paragraph(Tone::Plain, "Rule      ", rule_in_words(report.spec.rule));
    let mut sleep = vec![report.spec.sleep.to_string()];
    if let Some(margin) = report.margin {
        sleep.push(format!("spins for the last {}", tied(margin)));
    }
    if let Some(slack) = report
        .timer_slack
        .filter(|slack| *slack > Nanos::ZERO && report.spec.sleep.has_slack())
    {
        sleep.push(format!(
            "timer slack {}: the kernel may fire this thread's timers late by up to this much",
            tied(slack)
        ));
    }
    page.paragraph(Tone::Plain, "Sleep     ", &sleep.join("; "));
    if report.frames_lost > 0 {
        let text = format!(
            "{} overran the buffer and are missing from all figures",
            counted(report.frames_lost, "frame")
        );
        page.paragraph(Tone::Warning, "Lost      ", &text);
    }
}

fn process(page: &mut Page, report: &ProcessReport, figures: Option<&Figures>) {
    if let Some(thread) = report.chosen.and_then(|chosen| report.threads.get(chosen)) {
        let text = format!(
            "{} ({}), the most regular of {}",
            thread.name,
            thread.tid,
            counted(report.threads.len() as u64, "thread")
        );
        page.paragraph(Tone::Plain, "Thread    ", &text);
        if let Some(rhythm) = thread.periods.first() {
            page.paragraph(Tone::Plain, "Rhythm    ", &rhythm_in_words(rhythm, figures));
        }
        let busier = |other: &&ThreadReport| other.periods.is_empty() && other.cpu > thread.cpu;
        for other in report.threads.iter().filter(busier).take(THREADS) {
            let text = format!(
                "a thread that uses more CPU time but is not periodic: {}",
                without_rhythm(other)
            );
            page.paragraph(Tone::Warning, "Also      ", &text);
        }
    }
}

/// Describes a thread that has no detectable rhythm.
fn without_rhythm(thread: &ThreadReport) -> String {
    format!(
        "{} ({}), {}, {} of CPU time: {}",
        thread.name,
        thread.tid,
        counted(thread.wakeups, "wake-up"),
        tied(thread.cpu),
        thread.no_frames_reason.as_deref().unwrap_or_default()
    )
}

fn rhythm_in_words(rhythm: &RhythmReport, figures: Option<&Figures>) -> String {
    use ticktax_model::pace::FrameMark::{LongRuns, Wakeups};
    let marks = match rhythm.events {
        Wakeups => "counting all its wake-ups",
        LongRuns => "counting only wake-ups followed by work",
    };
    let drift_model = if rhythm.rhythm.rearmed {
        let shortest = figures.map_or_else(String::new, |figures| {
            let period = tied(figures.period);
            format!("; the shortest intervals, {period}, determine how many frames are expected")
        });
        format!("each frame is timed from the previous one, so delays add up{shortest}")
    } else {
        "fixed schedule: a late frame does not delay the next".to_owned()
    };
    let period = with_interval(rhythm.rhythm.period, rhythm.rhythm.low, rhythm.rhythm.high);
    format!(
        "{} (95 % CI), {marks}, {} of {} seen, {}; {drift_model}",
        tied(format!("every {period}")),
        grouped(rhythm.rhythm.seen),
        grouped(rhythm.rhythm.expected),
        tied(format!("jitter {}", rhythm.rhythm.jitter)),
    )
}

fn frames(page: &mut Page, figures: &Figures, subject: &Subject) {
    let fps = figures.average_fps.map_or_else(|| "-".to_owned(), number);
    page.section(&format!("Frame rate: {fps} FPS"));
    let mut parts = vec![match figures.expected {
        Some(expected) => format!(
            "{} of {} expected",
            tied(grouped(figures.frames)),
            counted(expected, "frame")
        ),
        None => counted(figures.frames, "frame"),
    }];
    parts.push(late::over(figures.late, figures.late_threshold));
    parts.push(tied(format!("{} dropped", grouped(figures.dropped))));
    parts.push(format!(
        "{} without a frame in time",
        counted(figures.overshot, "slot")
    ));
    page.paragraph(Tone::Plain, "", &format!("{}.", parts.join(", ")));
    let reasons = lost_in_words(figures, subject);
    if !reasons.is_empty() {
        page.paragraph(
            Tone::Plain,
            "Dropped   ",
            &format!("{}.", reasons.join("; ")),
        );
    }
    if !figures.fps.is_empty() {
        page.line(Tone::Faint, "     FPS    share of all seconds");
    }
    seconds(page, figures, BUCKETS);
    page.section("Frames");
    page.headings(
        Tone::Faint,
        "",
        &cells(["count", "median", "p90", "p99", "p99.9", "max"]),
    );
    distributions(page, figures, ROWS);
    page.legend(&legend(figures, subject));
    for (name, distribution) in [
        ("Due time to end", &figures.frame_time),
        ("Wake-up latency of frames", &figures.wakeup),
    ] {
        if let Some(distribution) = distribution {
            page.section(name);
            page.line(Tone::Faint, "      from   frames");
            histogram(page, &distribution.buckets);
        }
    }
}

/// Explains why some slots had no frame.
fn lost_in_words(figures: &Figures, subject: &Subject) -> Vec<String> {
    let mut parts = Vec::new();
    match (figures.slept_through, figures.dropped) {
        (_, 0) => {}
        (0, _) => parts.push("the previous frame overran".to_owned()),
        (slept, all) if slept == all => {
            parts.push("the loop overslept".to_owned());
        }
        (slept, all) => parts.push(format!(
            "{} because the loop overslept, {} because the previous frame overran",
            tied(grouped(slept)),
            tied(grouped(all - slept))
        )),
    }
    if let caught_up @ 1.. = figures.caught_up() {
        parts.push(format!(
            "{} of them may have run late, in a burst (by the CPU time used)",
            grouped(caught_up)
        ));
    }
    if let Some(slipped @ 1..) = figures.slipped {
        let fixed = matches!(subject, Subject::Loop(report) if report.spec.rule == PaceRule::Fixed);
        let why = if fixed {
            "the rule adds each frame's work and delay to the period"
        } else {
            "each delay shifted all later frames"
        };
        parts.push(format!(
            "{} more were lost to drift: {why}",
            tied(grouped(slipped))
        ));
    }
    parts
}

/// Writes the table of times, with at most `most` rows.
fn distributions(page: &mut Page, figures: &Figures, most: usize) {
    let rows = [
        (FRAME_TIME, &figures.frame_time),
        (START_DELAY, &figures.wait),
        ("wake-up latency", &figures.wakeup),
        ("start to end", &figures.busy),
        ("start to start", &figures.interval),
        ("CPU time", &figures.work),
    ];
    for (name, distribution) in rows.into_iter().take(most) {
        if let Some(distribution) = distribution {
            page.row(Tone::Plain, 2, name, &quantile_cells(distribution));
        }
    }
}

fn cells(words: [&str; 6]) -> Columns {
    let one_more = |line: Columns, word| line.and_right(1, 8, word);
    words.into_iter().fold(Columns::default(), one_more)
}

fn quantile_cells(distribution: &Distribution) -> Columns {
    let quantile = |q| quantile_or_blank(distribution, q);
    cells([
        &distribution.count.to_string(),
        &quantile(0.5),
        &quantile(0.9),
        &quantile(0.99),
        &quantile(0.999),
        &distribution.max.to_string(),
    ])
}

/// Writes how many seconds the loop ran at each frame rate, highest rate first. At most `most`
/// rates get their own line, and another line sums up the rest.
fn seconds(page: &mut Page, figures: &Figures, most: usize) {
    let all: u64 = figures.fps.iter().map(|rate| rate.seconds).sum();
    if all == 0 {
        return;
    }
    let (shown, others) = figures.fps.split_at(figures.fps.len().min(most));
    for rate in shown {
        let share = rate.seconds as f64 / all as f64;
        let line = format!(
            "  {:>6} {:>8}  {}",
            rate.fps,
            percent(share),
            bar(rate.seconds, all)
        );
        page.line(Tone::Plain, &line);
    }
    if let Some(last) = others.last() {
        let seconds: u64 = others.iter().map(|rate| rate.seconds).sum();
        let share = percent(seconds as f64 / all as f64);
        page.line(
            Tone::Plain,
            &format!("  {share} of the seconds had fewer, down to {}", last.fps),
        );
    }
}

fn bar(count: u64, max: u64) -> String {
    let length = (count as f64 / max.max(1) as f64 * BAR as f64).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the length is between 0 and BAR"
    )]
    "#".repeat(length as usize)
}

/// Merges buckets so that each covers a whole octave (a factor of two). All times below 1024 ns
/// share one bucket.
fn octaves(buckets: &[Bucket]) -> Vec<Bucket> {
    let floor = |bucket: &Bucket| {
        let from = bucket.from.0.max(0);
        if from < 1_024 {
            0
        } else {
            1_i64 << from.ilog2()
        }
    };
    let merge = |same: &[Bucket]| Bucket {
        from: Nanos(floor(&same[0])),
        below: same[same.len() - 1].below,
        count: same.iter().map(|bucket| bucket.count).sum(),
    };
    let same = buckets.chunk_by(|a, b| floor(a) == floor(b));
    same.map(merge).collect()
}

/// Writes a histogram. If it has too many buckets, they are merged into octaves. If there are still
/// too many, the longest times share a line.
fn histogram(page: &mut Page, buckets: &[Bucket]) {
    let coarse;
    let buckets = if buckets.len() > BUCKETS {
        coarse = octaves(buckets);
        &coarse
    } else {
        buckets
    };
    let (shown, others) = buckets.split_at(buckets.len().min(BUCKETS));
    let rest: u64 = others.iter().map(|bucket| bucket.count).sum();
    let max = shown.iter().map(|bucket| bucket.count).max();
    let max = max.unwrap_or(0).max(rest);
    for bucket in shown {
        let line = format!(
            "  {:>8} {:>8}  {}",
            bucket.from.to_string(),
            bucket.count,
            bar(bucket.count, max)
        );
        page.line(Tone::Plain, &line);
    }
    if let Some(first) = others.first() {
        let line = format!(
            "  {:>8} {rest:>8}  {}",
            first.from.to_string(),
            bar(rest, max)
        );
        page.line(Tone::Plain, &format!("{line} or longer"));
    }
}

/// Describes the observed threads, for use if none of them had a rhythm.
fn nothing(page: &mut Page, statement: &PaceStatement) {
    let Subject::Process(report) = &statement.subject else {
        page.section("No frame started");
        return;
    };
    page.section("No periodic thread");
    if report.threads.is_empty() {
        page.paragraph(
            Tone::Warning,
            "",
            "None of its threads ran during the measurement.",
        );
        return;
    }
    page.paragraph(
        Tone::Warning,
        "",
        "None of its threads wakes periodically, so ticktax cannot tell what a frame is.",
    );
    for thread in report.threads.iter().take(THREADS) {
        page.paragraph(Tone::Plain, "  - ", &without_rhythm(thread));
    }
    let others = report.threads.len().saturating_sub(THREADS);
    if others > 0 {
        let more = counted(others as u64, "more thread");
        page.line(Tone::Faint, &format!("  and {more}"));
    }
}

/// Explains the terms used on the page.
fn legend(figures: &Figures, subject: &Subject) -> String {
    let overshot = figures.overshot_threshold.map_or_else(String::new, |from| {
        format!(", or only more than {} late", tied(from))
    });
    let mut legend = format!(
        "dropped: slots in which no frame started, because the previous one overran or the loop \
         was asleep. missed: slots of a fixed schedule, one every {}, in which no frame \
         started{overshot}. lost to drift: expected frames that are missing because delays shifted \
         all later frames. late: frames that started more than {} after they were due. due \
         time to end: until the end of the work. due time to start: also called start delay. A \
         dropped slot counts in both until the next frame starts. wake-up latency: the start \
         delay of \
         frames before which the loop slept. Quantiles are left out if there are too few frames. A \
         full bar is all seconds or, in a histogram, its highest count. Each line of a histogram \
         counts the frames from the time at its left to the next time.",
        tied(figures.period),
        tied(figures.late_threshold)
    );
    let exact = figures.frame_time.as_ref().is_none_or(|times| times.exact);
    if !exact {
        legend += " With this many frames, quantiles are accurate to ±11 %.";
    }
    if matches!(subject, Subject::Process(_)) {
        legend += " The due time comes from the loop's earliest wake-ups, so a delay common to all \
            of them is not visible.";
    }
    legend
}
