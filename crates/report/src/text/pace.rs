//! The page about a paced loop: the outcome of its frames, and their cost.

mod comparison;
mod cost;
mod first;

use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::pace::{
    Bucket, Distribution, Figures, LoopReport, PaceComparison, PaceEnd, PaceRule, PaceStatement,
    ProcessReport, RhythmReport, Subject, ThreadReport,
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

pub(super) use comparison::pace_comparison;

impl Paged for PaceStatement {
    fn page(&self, style: &TextStyle) -> Written {
        pace(self, style)
    }
}

impl Paged for PaceComparison {
    fn page(&self, style: &TextStyle) -> Written {
        pace_comparison(self, style)
    }
}

/// Length of the longest bar, in columns.
const BAR: usize = 40;
/// Maximum number of histogram buckets with their own line.
const BUCKETS: usize = 16;
/// Maximum number of threads named.
const THREADS: usize = 6;

/// Renders the statement about a paced loop. The page ends with a line break.
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
            page.section("Who made frames late");
            late::write(&mut page, late, None);
            late::ruled_out(&mut page, late);
            late::possible_steal(&mut page, late);
        }
    }
    if view.shows(Section::Accounting) {
        cost::write(&mut page, statement);
    }
    if view.shows(Section::Limits) {
        if statement.limitations.is_empty() && view != View::Full {
            page.section("What could not be seen");
            let text = match &statement.subject {
                Subject::Process(_) => "Nothing: no event was lost.",
                Subject::Loop(report) if report.frames_lost == 0 => {
                    "The kernel was not traced; no frame was lost."
                }
                Subject::Loop(_) => "The kernel was not traced.",
            };
            page.paragraph(Tone::Good, "  ", text);
        }
        limitations(&mut page, &statement.limitations);
    }
    page.finish()
}

/// Writes the loop's settings or the thread's rhythm, and why the measurement ended early.
fn subject_lines(page: &mut Page, statement: &PaceStatement) {
    match &statement.subject {
        Subject::Loop(report) => own_loop(page, report),
        Subject::Process(report) => process(page, report, statement.figures.as_ref()),
    }
    if let Some(why) = &statement.ended_early {
        page.paragraph(Tone::Warning, "Ended     ", &ended(why));
    }
}

/// Why the measurement ended early.
pub(super) fn ended(why: &PaceEnd) -> String {
    match why {
        PaceEnd::Failed { failure } => foot::failure(failure),
        PaceEnd::ProcessEnded { pid } => format!("process {pid} ended"),
        PaceEnd::Interrupted => "it was interrupted".to_owned(),
        PaceEnd::InterruptedInTurn { turn, turns } => {
            format!("it was interrupted in turn {turn} of {turns}")
        }
    }
}

/// Lists what could not be seen, if anything.
pub(super) fn limitations(page: &mut Page, limitations: &[Limitation]) {
    if limitations.is_empty() {
        return;
    }
    page.section("What could not be seen");
    for limitation in limitations {
        let text = words(limitation).sentence();
        page.paragraph(Tone::Warning, "  - ", &clean(&text));
    }
}

/// One line as a game server's console shows it: frames in the last second, then the totals of
/// slots without a frame and of steps that no frame was in time for.
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
        "ticktax: pace of {whose}{} over {}, from {}",
        head::in_world(statement.world),
        statement.elapsed,
        date(statement.began_unix)
    );
    page.line(Tone::Strong, &title);
    head::host(page, &statement.machine);
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn rule_in_words(rule: PaceRule) -> &'static str {
    match rule {
        PaceRule::Fixed => "fixed: a frame is due a whole period after the work of the last one",
        PaceRule::Remaining => "remaining: a frame is due a period after the last one began",
        PaceRule::Deadline => "deadline: frames are due on a grid, whatever happened before",
    }
}

fn own_loop(page: &mut Page, report: &LoopReport) {
    let text = format!(
        "{} a second, one every {}, each with {} of work; on {}, {}",
        number(report.spec.rate),
        tied(report.spec.period),
        tied(report.spec.work),
        tied(format!("CPU {}", report.cpu)),
        report.policy,
    );
    page.paragraph(Tone::Plain, "Frames    ", &text);
    page.paragraph(Tone::Plain, "Rule      ", rule_in_words(report.spec.rule));
    let mut sleep = vec![format!("by {}", report.spec.sleep)];
    if let Some(margin) = report.margin {
        sleep.push(format!("the last {} spinning", tied(margin)));
    }
    if let Some(slack) = report
        .timer_slack
        .filter(|slack| *slack > Nanos::ZERO && report.spec.sleep.has_slack())
    {
        sleep.push(format!(
            "the kernel may be {} late with this thread's timers (its timer slack)",
            tied(slack)
        ));
    }
    page.paragraph(Tone::Plain, "Sleep     ", &sleep.join("; "));
    if report.frames_lost > 0 {
        let text = format!(
            "{} overran the buffer and are in none of the figures",
            counted(report.frames_lost, "frame")
        );
        page.paragraph(Tone::Warning, "Lost      ", &text);
    }
}

fn process(page: &mut Page, report: &ProcessReport, figures: Option<&Figures>) {
    if let Some(thread) = report.chosen.and_then(|chosen| report.threads.get(chosen)) {
        let text = format!(
            "{} ({}), the clearest rhythm of {}",
            thread.name,
            thread.tid,
            counted(report.threads.len() as u64, "thread")
        );
        page.paragraph(Tone::Plain, "Thread    ", &text);
        if let Some(rhythm) = thread.rhythms.first() {
            page.paragraph(Tone::Plain, "Rhythm    ", &rhythm_in_words(rhythm, figures));
        }
        let busier = |other: &&ThreadReport| other.rhythms.is_empty() && other.cpu > thread.cpu;
        for other in report.threads.iter().filter(busier).take(THREADS) {
            let text = format!("busier, and without a rhythm: {}", without_rhythm(other));
            page.paragraph(Tone::Warning, "Besides   ", &text);
        }
    }
}

/// Describes a thread without a rhythm.
fn without_rhythm(thread: &ThreadReport) -> String {
    format!(
        "{} ({}): {}, {} of CPU time; {}",
        thread.name,
        thread.tid,
        counted(thread.wakeups, "wakeup"),
        tied(thread.cpu),
        thread.why_none.as_deref().unwrap_or_default()
    )
}

fn rhythm_in_words(rhythm: &RhythmReport, figures: Option<&Figures>) -> String {
    use ticktax_model::pace::FrameMark::{LongRuns, Wakeups};
    let marks = match rhythm.mark {
        Wakeups => "of its wakeups",
        LongRuns => "of the wakeups after which it works, among naps",
    };
    let drift_model = if rhythm.rhythm.rearmed {
        let shortest = figures.map_or_else(String::new, |figures| {
            let period = tied(figures.period);
            format!("; frames are counted by its shortest intervals, {period}")
        });
        format!("each starts from the last, so that delays add up{shortest}")
    } else {
        "on a grid: a late one does not delay the next".to_owned()
    };
    let period = with_interval(rhythm.rhythm.period, rhythm.rhythm.low, rhythm.rhythm.high);
    format!(
        "{} {marks}, {} of {} seen, {}; {drift_model}",
        tied(format!("every {period}")),
        grouped(rhythm.rhythm.seen),
        grouped(rhythm.rhythm.expected),
        tied(format!("jitter {}", rhythm.rhythm.jitter)),
    )
}

fn frames(page: &mut Page, figures: &Figures, subject: &Subject) {
    let fps = figures.average_fps.map_or_else(|| "-".to_owned(), number);
    page.section(&format!(
        "FPS {fps} [dropped {}, overshot {}]",
        figures.dropped, figures.overshot
    ));
    let mut parts = vec![match figures.wanted {
        Some(wanted) => format!(
            "{} of {} that the rate requires",
            tied(grouped(figures.frames)),
            counted(wanted, "frame")
        ),
        None => counted(figures.frames, "frame"),
    }];
    parts.push(late::over(figures.late, figures.late_from));
    parts.extend(lost_in_words(figures, subject));
    page.paragraph(Tone::Plain, "", &format!("{}.", parts.join("; ")));
    seconds(page, figures, BUCKETS);
    page.section("The frames");
    page.headings(
        Tone::Faint,
        "",
        &cells(["n", "median", "p90", "p99", "p99.9", "longest"]),
    );
    distributions(page, figures);
    page.legend(&legend(figures, subject));
    for (name, distribution) in [
        (
            "Frame times, from when a frame was due to its end",
            &figures.frame_time,
        ),
        ("How late wakeups were", &figures.wakeup),
    ] {
        if let Some(distribution) = distribution {
            page.section(name);
            histogram(page, &distribution.buckets);
        }
    }
}

/// Explains why slots had no frame.
fn lost_in_words(figures: &Figures, subject: &Subject) -> Vec<String> {
    let mut parts = Vec::new();
    match (figures.slept_through, figures.dropped) {
        (_, 0) => {}
        (0, _) => parts.push("the frame before ran into the dropped slots".to_owned()),
        (slept, all) if slept == all => {
            parts.push("the dropped slots were slept through".to_owned());
        }
        (slept, _) => parts.push(format!(
            "of the dropped slots {} slept through, the others run into by the frame before",
            grouped(slept)
        )),
    }
    if let caught_up @ 1.. = figures.caught_up() {
        parts.push(format!(
            "{} of them perhaps made late without a wake-up: it used the CPU time of so many more frames",
            grouped(caught_up)
        ));
    }
    if let Some(slipped @ 1..) = figures.slipped {
        let fixed = matches!(subject, Subject::Loop(report) if report.spec.rule == PaceRule::Fixed);
        let why = if fixed {
            "the rule adds each frame's work, and each delay, to its period"
        } else {
            "each delay put off all frames after it"
        };
        parts.push(format!("{} slipped: {why}", grouped(slipped)));
    }
    parts
}

/// Writes the rows of the table of times.
fn distributions(page: &mut Page, figures: &Figures) {
    let rows = [
        ("frame time", &figures.frame_time),
        ("wait to begin", &figures.wait),
        ("late wakeup", &figures.wakeup),
        ("begin to end", &figures.busy),
        ("begin to begin", &figures.interval),
        ("CPU time", &figures.work),
    ];
    for (name, distribution) in rows {
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

/// Writes how many seconds had each frame rate, highest rate first: at most `most` lines, and one
/// for the rest.
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
            &format!("  {share} of the seconds fewer, down to {}", last.fps),
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

/// Merges buckets into whole octaves. Everything below about 1 µs becomes one bucket.
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

/// Writes a histogram. Long ones are merged into octaves, and the remaining upper buckets become
/// one line.
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
        page.line(Tone::Plain, &format!("{line} and longer"));
    }
}

/// Writes what was seen instead of a rhythm.
fn nothing(page: &mut Page, statement: &PaceStatement) {
    let Subject::Process(report) = &statement.subject else {
        page.section("No frame began");
        return;
    };
    page.section("No rhythm");
    if report.threads.is_empty() {
        page.paragraph(
            Tone::Warning,
            "",
            "None of its threads ran while it was watched.",
        );
        return;
    }
    page.paragraph(
        Tone::Warning,
        "",
        "None of its threads wakes at regular times, so there are no frames to report.",
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

/// Explains the terms on the page.
fn legend(figures: &Figures, subject: &Subject) -> String {
    let overshot = figures.overshot_from.map_or_else(String::new, |from| {
        format!(", or that began more than {} late", tied(from))
    });
    let mut legend = format!(
        "dropped: slots in which no frame began, because the one before ran into them or the loop \
         slept through them. overshot: steps of a fixed schedule, one every {}, that no frame was \
         in time for{overshot}. late: frames that began more than {} after they were due. frame \
         time: from when a frame was due to the end of its work; wait to begin: to its begin. A dropped slot counts in both, and waits for the frame that began \
         at last. late wakeup: the wait of frames that the loop slept for. median, p90 … are \
         printed where there are enough frames for them. Bars: of frames in a second a full one is all \
         seconds; of a histogram it is its highest count, and each line counts from the time at its left \
         to the next.",
        tied(figures.period),
        tied(figures.late_from)
    );
    let exact = figures.frame_time.as_ref().is_none_or(|times| times.exact);
    if !exact {
        legend += " Where there are as many as here, they are right to ±11 %.";
    }
    if matches!(subject, Subject::Process(_)) {
        legend += " When a frame was due is taken from the loop's earliest wakeups: a delay \
            common to all of them cannot be seen from outside.";
    }
    legend
}
