//! The pages of trials, and of two lists of numbers beside each other.

mod checks;
mod numbers;
mod value;

use ticktax_model::trial::{
    Arm, Comparison, Effect, FailIfResult, Metric, NumbersComparison, Outcome, RunPurpose,
    TrialStatement, Unit, Verdict,
};

use self::checks::{Names, in_words, is_constant};
use self::value::{Shown, chance, value};
use super::block::{Columns, Written};
use super::knob::{is_back, undone};
use super::numbers::{counted, date, grouped};
use super::page::{Page, Tone, clean, tied};
use super::screen::{explained, fitted, narrowed};
use super::{Paged, TextStyle};
use crate::view::{Section, View};

impl Paged for TrialStatement {
    fn page(&self, style: &TextStyle) -> Written {
        trial(self, style)
    }
}

impl Paged for NumbersComparison {
    fn page(&self, style: &TextStyle) -> Written {
        numbers::numbers(self, style)
    }
}

/// How much of what is told.
#[derive(Clone, Copy)]
struct Room {
    /// Rows of the table.
    rows: usize,
    /// Checks.
    checks: usize,
    /// Whether intervals, reasons and the noise, which the table has as well, are left out, and arms share lines.
    brief: bool,
}

const fn room(rows: usize, checks: usize, brief: bool) -> Room {
    Room {
        rows,
        checks,
        brief,
    }
}

/// From the most to the least.
const ROOMS: [Room; 10] = [
    room(12, 6, false),
    room(9, 4, false),
    room(6, 3, false),
    room(12, 5, true),
    room(9, 4, true),
    room(8, 2, true),
    room(6, 2, true),
    room(4, 2, true),
    room(2, 1, true),
    room(1, 1, true),
];
const EVERYTHING: Room = room(usize::MAX, usize::MAX, false);
/// From this width on a table has intervals, what was detectable, and chance.
const ROOMY: usize = 72;

/// What the columns mean.
const WORDS: &str = "A: the mean of the first arm's runs; the next column: of the arm that stands beside it. effect: the \
    mean difference within blocks, of values above 0 a share of A, else in the metric's unit (pt: percentage \
    points), with its 95 % interval, which is drawn from the blocks (percentile-t), of fewer than 8 or more than 500 \
    Student's. detect: the effect that a trial of \
    so many blocks finds in four of five cases, by the noise of A beside itself before the blocks. p: the probability that \
    chance alone sets the arms so far apart (signed ranks of the blocks' differences), all rows together (Holm). \
    better, worse, differs: p is at most 5 %, and the interval leaves 0 out. none: no difference larger than the \
    interval, and that is no more than --difference. open: neither.";

fn trial(statement: &TrialStatement, style: &TextStyle) -> Written {
    if style.view == View::First {
        let text = fitted(&ROOMS, |room| {
            let mut page = Page::new(narrowed(style));
            answer(&mut page, statement, room);
            page.finish()
        });
        return explained(text, WORDS, style);
    }
    let mut page = Page::new(*style);
    if style.view == View::Full {
        answer(&mut page, statement, EVERYTHING);
        page.section("Runs");
        runs(&mut page, statement);
    }
    if style.view.shows(Section::Legend) {
        page.section("Words");
        page.legend(WORDS);
    }
    page.finish()
}

/// The answer, then what it rests on.
fn answer(page: &mut Page, statement: &TrialStatement, room: Room) {
    verdicts(page, statement, room.brief);
    fail_ifs(page, &statement.fail_if, statement);
    design(page, statement, room.brief);
    table(page, statement, room.rows);
    let most = if room.brief { 1 } else { room.rows };
    for (text, arm) in predictions(statement, room.brief).iter().take(most) {
        page.paragraph(Tone::Plain, &format!("Predicted of {arm}: "), text);
    }
    let told = checks(statement);
    for text in told.iter().take(room.checks) {
        page.paragraph(Tone::Warning, "Check: ", text);
    }
    let left = told.len().saturating_sub(room.checks);
    if left > 0 {
        let text = format!("and {left} more (--format json)");
        page.paragraph(Tone::Faint, "Check: ", &text);
    }
    restored(page, statement);
}

/// What speaks against the verdicts, each once.
fn checks(statement: &TrialStatement) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for it in &statement.comparisons {
        let names = Names {
            about: about(statement, it),
            first: label(statement, 0),
            second: label(statement, it.arm),
        };
        let shown = Shown::new(unit_of(&statement.trial.metrics, it), it.scale);
        for check in &it.checks {
            let text = in_words(check, &names, shown);
            if !told.contains(&text) {
                told.push(text);
            }
        }
    }
    told
}

/// What an arm is called.
fn label(statement: &TrialStatement, arm: usize) -> String {
    let arm = statement.trial.arms.get(arm);
    arm.map_or_else(|| "?".to_owned(), |arm| clean(&arm.label))
}

/// Which comparison something is said of: `time`, or `time of C` where there are several arms.
fn about(statement: &TrialStatement, it: &Comparison) -> String {
    let metric = clean(&it.metric);
    if statement.trial.arms.len() > 2 {
        format!("{metric} of {}", label(statement, it.arm))
    } else {
        metric
    }
}

fn unit_of(metrics: &[Metric], it: &Comparison) -> Unit {
    let metric = metrics.iter().find(|metric| metric.id == it.metric);
    metric.map_or(Unit::None, |metric| metric.unit)
}

/// What each arm is, in a sentence for each kind of verdict.
fn verdicts(page: &mut Page, statement: &TrialStatement, brief: bool) {
    let metrics = &statement.trial.metrics;
    for arm in 1..statement.trial.arms.len() {
        let of_arm = statement.comparisons.iter().filter(|it| it.arm == arm);
        let mut told: [Vec<String>; 5] = Default::default();
        for it in of_arm {
            let shown = Shown::new(unit_of(metrics, it), it.scale);
            let (place, text) = clause(it, shown, brief);
            told[place].push(text);
        }
        let (first, arm) = (label(statement, 0), label(statement, arm));
        for (place, clauses) in told.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            let what = clauses.join(", ");
            let (tone, text) = match place {
                0 => (Tone::Good, format!("{arm} is better: {what}.")),
                1 => (Tone::Alarm, format!("{arm} is worse: {what}.")),
                2 => (Tone::Strong, format!("{arm} differs: {what}.")),
                3 => (
                    Tone::Strong,
                    format!("{arm} makes no difference larger than {what}."),
                ),
                _ => (
                    Tone::Warning,
                    format!("Cannot tell {arm} from {first} by {what}."),
                ),
            };
            page.paragraph(tone, "", &text);
        }
    }
    if statement.comparisons.is_empty() {
        page.paragraph(Tone::Warning, "", "Nothing was compared.");
    }
}

/// What is said of a comparison, and in which sentence.
fn clause(it: &Comparison, shown: Shown, brief: bool) -> (usize, String) {
    let metric = clean(&it.metric);
    let effect = || match it.effect {
        Some(effect) if brief => format!("{metric} {}", tied(shown.effect(&effect))),
        Some(effect) => {
            let (value, interval) = (shown.effect(&effect), shown.interval_with_unit(&effect));
            format!("{metric} {} ({})", tied(value), tied(interval))
        }
        None => metric.clone(),
    };
    match it.verdict {
        Verdict::Better => (0, effect()),
        Verdict::Worse => (1, effect()),
        Verdict::Differs => (2, effect()),
        Verdict::NoDifferenceBeyond { bound } => {
            (3, format!("{} in {metric}", tied(shown.size(bound))))
        }
        Verdict::CannotTell { .. } if brief => (4, metric),
        Verdict::CannotTell { more_blocks } => {
            let why = match (more_blocks, it.effect) {
                _ if is_constant(it) => "it is constant".to_owned(),
                (_, None) => "too few values".to_owned(),
                (Some(more), _) => format!("about {} would", counted_more(more)),
                (None, _) => "10 000 blocks would not".to_owned(),
            };
            (4, format!("{metric} ({why})"))
        }
    }
}

fn counted_more(more: u64) -> String {
    let plural = if more == 1 { "block" } else { "blocks" };
    tied(format!("{} more {plural}", grouped(more)))
}

/// What must not be, and whether it is.
fn fail_ifs(page: &mut Page, all: &[FailIfResult], statement: &TrialStatement) {
    for it in all {
        let arm = label(statement, it.arm);
        let (tone, words) = match it.outcome {
            Outcome::Holds => (Tone::Alarm, "holds"),
            Outcome::DoesNotHold => (Tone::Good, "does not hold"),
            Outcome::CannotTell => (Tone::Warning, "cannot be told"),
        };
        let condition = clean(&it.condition.to_string());
        page.paragraph(tone, "Fail if ", &format!("{condition}: {words} for {arm}"));
    }
}

/// What was tried, of what, and how often.
fn design(page: &mut Page, statement: &TrialStatement, brief: bool) {
    let trial = &statement.trial;
    let host = match &*trial.machine.host {
        "" => "this machine",
        host => host,
    };
    let measured = trial.runs.iter();
    let measured = measured.filter(|run| run.purpose == RunPurpose::Measured);
    let runs = measured.count() as u64;
    let text = format!(
        "{}: {} by turns, {}, on {}, Linux {}, from {}",
        clean(&trial.subject),
        counted(runs, "run"),
        counted(trial.design.blocks, "block"),
        clean(host),
        clean(&trial.machine.kernel),
        date(trial.began_unix),
    );
    page.paragraph(Tone::Plain, "", &text);
    let arms = trial.arms.iter();
    if brief {
        let each = arms.map(|arm| format!("{} {}", clean(&arm.label), settings(arm)));
        let each: Vec<String> = each.collect();
        page.paragraph(Tone::Plain, "", &each.join("; "));
    } else {
        for arm in arms {
            let label = format!("{}  ", clean(&arm.label));
            page.paragraph(Tone::Plain, &label, &settings(arm));
        }
        noise(page, statement);
    }
    if trial.interrupted {
        let blocks = trial.runs.iter();
        let blocks = blocks.filter(|run| run.purpose == RunPurpose::Measured);
        let last = blocks.map(|run| run.block + 1).max().unwrap_or(0);
        let text = format!(
            "it was interrupted in block {last} of {}",
            trial.design.blocks
        );
        page.paragraph(Tone::Warning, "Ended: ", &text);
    }
    if statement.successes.iter().any(|it| it.succeeded < it.runs) {
        let each = statement.successes.iter().map(|it| {
            let (label, runs) = (label(statement, it.arm), counted(it.runs, "run"));
            format!("{label} {} of {runs}", grouped(it.succeeded))
        });
        let each: Vec<String> = each.collect();
        page.paragraph(Tone::Warning, "Succeeded: ", &each.join(", "));
    }
}

/// How the first arm varies beside itself.
fn noise(page: &mut Page, statement: &TrialStatement) {
    let trial = &statement.trial;
    let of_one = statement.comparisons.iter().filter(|it| it.arm == 1);
    let each = of_one.filter_map(|it| {
        let shown = Shown::new(unit_of(&trial.metrics, it), it.scale);
        let noise = tied(shown.size(it.noise?));
        Some(format!("{} {noise}", clean(&it.metric)))
    });
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        let text = format!(
            "{} from block to block, {} beside itself in {} before",
            each.join(", "),
            label(statement, 0),
            counted(trial.design.noise_runs, "run")
        );
        page.paragraph(Tone::Plain, "Noise: ", &text);
    }
}

fn settings(arm: &Arm) -> String {
    if arm.settings.is_empty() {
        return "as it is".to_owned();
    }
    let each = arm.settings.iter().map(|it| {
        let target = match &*it.target {
            "" | "the machine" => String::new(),
            target => format!(" ({})", clean(target)),
        };
        format!("{}={}{target}", clean(&it.knob), clean(&it.value))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn cells(page: &Page, [a, b, effect, interval, detectable, p, verdict]: [&str; 7]) -> Columns {
    if page.width() < ROOMY {
        return Columns::right([(9, a), (9, b), (9, effect), (7, verdict)]);
    }
    Columns::right([
        (9, a),
        (9, b),
        (8, effect),
        (16, interval),
        (7, detectable),
        (6, p),
        (7, verdict),
    ])
}

/// A row for each metric of each arm.
fn table(page: &mut Page, statement: &TrialStatement, most: usize) {
    let trial = &statement.trial;
    let mut before = None;
    for it in statement.comparisons.iter().take(most) {
        if before != Some(it.arm) {
            let (a, b) = (label(statement, 0), label(statement, it.arm));
            let titles = [
                &*a,
                &*b,
                "effect",
                "95 % interval",
                "detect",
                "p",
                "verdict",
            ];
            let cells = cells(page, titles);
            page.headings(Tone::Strong, "", &cells);
            before = Some(it.arm);
        }
        let unit = unit_of(&trial.metrics, it);
        let shown = Shown::new(unit, it.scale);
        let mean =
            |figures: Option<f64>| figures.map_or_else(|| "-".to_owned(), |it| value(unit, it));
        let (a, b) = (
            mean(it.first.map(|it| it.mean)),
            mean(it.second.map(|it| it.mean)),
        );
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let effect = or_dash(it.effect.map(|effect| shown.effect(&effect)));
        let interval = or_dash(it.effect.map(|effect| shown.interval(&effect)));
        let detectable = or_dash(it.detectable.map(|it| shown.size(it)));
        let p = or_dash(it.chance_corrected.map(chance));
        let (tone, verdict) = match it.verdict {
            Verdict::Better => (Tone::Good, "better"),
            Verdict::Worse => (Tone::Alarm, "worse"),
            Verdict::Differs => (Tone::Strong, "differs"),
            Verdict::NoDifferenceBeyond { .. } => (Tone::Plain, "none"),
            Verdict::CannotTell { .. } => (Tone::Warning, "open"),
        };
        let cells = cells(page, [&a, &b, &effect, &interval, &detectable, &p, verdict]);
        page.row(tone, 2, &clean(&it.metric), &cells);
    }
    let left = statement.comparisons.len().saturating_sub(most);
    if left > 0 {
        let text = format!("and {left} more (--format json)");
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

/// What a model had said of each arm, beside what was found.
fn predictions(statement: &TrialStatement, brief: bool) -> Vec<(String, String)> {
    let each = statement.comparisons.iter().filter_map(|it| {
        let told = it.predicted.as_ref()?;
        let shown = Shown::new(unit_of(&statement.trial.metrics, it), it.scale);
        let with_interval = |effect: &Effect| {
            if brief {
                return tied(shown.effect(effect));
            }
            let interval = tied(shown.interval_with_unit(effect));
            format!("{} ({interval})", tied(shown.effect(effect)))
        };
        let predicted = with_interval(&told.effect);
        let proven = match (&it.effect, told.error) {
            (Some(effect), Some(error)) => {
                let error = tied(shown.error(error));
                format!("proven {}, so it is off by {error}", with_interval(effect))
            }
            _ => "nothing was measured that it could be held against".to_owned(),
        };
        let from = if brief {
            String::new()
        } else {
            format!(", of the work in {}", clean(&told.load))
        };
        let (metric, settings) = (clean(&it.metric), clean(&told.settings.join(", ")));
        let text = format!("{metric} {predicted} with {settings}{from}; {proven}");
        Some((text, label(statement, it.arm)))
    });
    each.collect()
}

/// What became of the settings: in a word where all have their old values.
fn restored(page: &mut Page, statement: &TrialStatement) {
    let all = &statement.restored;
    let back = all.iter().filter(|it| is_back(it.outcome)).count();
    if back > 0 {
        let text = format!("{} as before", counted(back as u64, "setting"));
        page.paragraph(Tone::Good, "Put back: ", &text);
    }
    for it in all.iter().filter(|it| !is_back(it.outcome)) {
        undone(page, it);
    }
}

/// Every run that was compared, block by block.
fn runs(page: &mut Page, statement: &TrialStatement) {
    let trial = &statement.trial;
    for (place, metric) in trial.metrics.iter().enumerate() {
        page.paragraph(Tone::Strong, "", &clean(&metric.id));
        let runs = trial.runs.iter();
        let runs = runs.filter(|run| run.purpose == RunPurpose::Measured);
        let mut runs: Vec<_> = runs.collect();
        runs.sort_by_key(|run| (run.block, run.position));
        for block in runs.chunk_by(|a, b| a.block == b.block) {
            let each = block.iter().map(|run| {
                let measured = run.values.get(place).copied().flatten();
                let measured = measured.map_or_else(|| "-".to_owned(), |it| value(metric.unit, it));
                let failed = if run.succeeded { "" } else { " failed" };
                tied(format!("{} {measured}{failed}", label(statement, run.arm)))
            });
            let each: Vec<String> = each.collect();
            let number = block.first().map_or(0, |run| run.block + 1);
            page.paragraph(Tone::Plain, &format!("  {number:>4}  "), &each.join("  "));
        }
    }
}
