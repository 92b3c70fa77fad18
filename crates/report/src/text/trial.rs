//! The pages about trials, and about comparisons of two lists of numbers.

mod checks;
mod numbers;

use ticktax_model::trial::{
    Arm, Comparison, Effect, FailIfResult, Metric, NumbersComparison, Outcome, RunPurpose,
    TrialStatement, Unit, Verdict,
};

use self::checks::{Names, check_text, is_constant, needed, samples};
use super::block::{Columns, Written};
use super::knob::{is_back, undone};
use super::numbers::{counted, date, grouped};
use super::page::{Page, Tone, clean, tied};
use super::screen::{explained, fitted, narrowed};
use super::value::{Shown, chance, value};
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

/// A level of detail of the first screen.
#[derive(Clone, Copy)]
struct Room {
    /// Maximum number of rows in the table.
    rows: usize,
    /// Maximum number of checks shown.
    checks: usize,
    /// Whether to put all arms on one line, and to leave out the noise, the reasons and the
    /// confidence intervals. The table also shows these intervals.
    brief: bool,
}

const fn room(rows: usize, checks: usize, brief: bool) -> Room {
    Room {
        rows,
        checks,
        brief,
    }
}

/// All levels of detail, from the most detailed to the least.
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
/// Minimum page width for the columns that show confidence intervals, detectable effects and
/// probabilities.
const ROOMY: usize = 72;

/// Explains the columns.
const WORDS: &str = "A, B: means of all runs with these settings. B vs A: if all values are \
    above 0, the geometric mean of the blocks' ratios of B to A, minus 1; a single slow run \
    changes it less than it changes the means. Otherwise, the mean difference within blocks in \
    the metric's unit (pp: percentage points). 95 % CI: its confidence interval, bootstrapped \
    from the blocks (percentile-t), or Student's with fewer than 8 or more than 500 blocks. \
    detects: the smallest effect that a trial with this many blocks detects with 80 % power, \
    given the noise between runs of A before the blocks. p: probability of a difference this \
    large by chance alone (signed ranks of the blocks' differences), corrected for all rows \
    (Holm). better, worse, differs: p is at most 5 % and the interval excludes 0. equal: any \
    difference is within the interval, which is no larger than --difference. unclear: none of \
    these.";

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
        page.section("Runs, by metric and block");
        runs(&mut page, statement);
    }
    if style.view.shows(Section::Legend) {
        page.section("Terms");
        page.legend(WORDS);
    }
    page.finish()
}

/// Writes the verdicts and what they are based on.
fn answer(page: &mut Page, statement: &TrialStatement, room: Room) {
    verdicts(page, statement, room.brief);
    fail_ifs(page, &statement.fail_if, statement);
    design(page, statement, room.brief);
    table(page, statement, room);
    let most = if room.brief { 1 } else { room.rows };
    for (text, arm) in predictions(statement, room.brief).iter().take(most) {
        page.paragraph(Tone::Plain, &format!("Prediction for {arm}: "), text);
    }
    let doubts = checks(statement);
    for text in doubts.iter().take(room.checks) {
        page.paragraph(Tone::Warning, "Check: ", text);
    }
    let left = doubts.len().saturating_sub(room.checks);
    if left > 0 {
        let text = format!("{} (--format json)", counted(left as u64, "more check"));
        page.paragraph(Tone::Faint, "", &text);
    }
    restored(page, statement);
}

/// Returns the doubts about all verdicts as texts, without duplicates.
fn checks(statement: &TrialStatement) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for comparison in &statement.comparisons {
        let names = Names {
            about: about(statement, comparison),
            first: label(statement, 0),
            second: label(statement, comparison.arm),
        };
        let shown = Shown::new(
            unit_of(&statement.trial.metrics, comparison),
            comparison.scale,
        );
        for check in &comparison.checks {
            let text = check_text(check, &names, shown, samples(comparison));
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    texts
}

/// Returns the label of the arm with the index `arm`, or `?` if the arm does not exist.
fn label(statement: &TrialStatement, arm: usize) -> String {
    let arm = statement.trial.arms.get(arm);
    arm.map_or_else(|| "?".to_owned(), |arm| clean(&arm.label))
}

/// Returns the subject of a comparison. It is `time`, for example, or `time of C` if there are more
/// than two arms.
fn about(statement: &TrialStatement, comparison: &Comparison) -> String {
    let metric = clean(&comparison.metric);
    if statement.trial.arms.len() > 2 {
        format!("{metric} of {}", label(statement, comparison.arm))
    } else {
        metric
    }
}

fn unit_of(metrics: &[Metric], comparison: &Comparison) -> Unit {
    let metric = metrics.iter().find(|metric| metric.id == comparison.metric);
    metric.map_or(Unit::None, |metric| metric.unit)
}

/// Writes the verdicts on each arm.
fn verdicts(page: &mut Page, statement: &TrialStatement, brief: bool) {
    let first = label(statement, 0);
    for arm in 1..statement.trial.arms.len() {
        let of_arm = statement.comparisons.iter();
        let of_arm = of_arm.filter(|comparison| comparison.arm == arm);
        let of_arm = of_arm.map(|comparison| {
            let unit = unit_of(&statement.trial.metrics, comparison);
            (comparison, Shown::new(unit, comparison.scale))
        });
        verdict_on(page, [&first, &label(statement, arm)], of_arm, brief);
    }
    if statement.comparisons.is_empty() {
        page.paragraph(Tone::Warning, "", "Nothing was compared.");
    }
}

/// Writes the verdicts on the second of two arms, in one sentence per kind of verdict.
fn verdict_on<'a>(
    page: &mut Page,
    [first, arm]: [&str; 2],
    comparisons: impl Iterator<Item = (&'a Comparison, Shown)>,
    brief: bool,
) {
    let mut sentences: [Vec<String>; 5] = Default::default();
    for (comparison, shown) in comparisons {
        let (place, text) = clause(comparison, shown, brief);
        sentences[place].push(text);
    }
    for (place, clauses) in sentences
        .iter()
        .enumerate()
        .filter(|(_, clauses)| !clauses.is_empty())
    {
        let what = clauses.join(", ");
        let arms = format!("{arm} vs {first}");
        let (tone, text) = match place {
            0 => (Tone::Good, format!("{arm} is better: {what}.")),
            1 => (Tone::Alarm, format!("{arm} is worse: {what}.")),
            2 => (Tone::Strong, format!("{arm} differs: {what}.")),
            3 => (Tone::Strong, format!("{arms}, no difference: {what}.")),
            _ => (Tone::Warning, format!("{arms}, unclear: {what}.")),
        };
        page.paragraph(tone, "", &text);
    }
}

/// Formats a comparison as part of a sentence. Also returns the index of that sentence.
fn clause(comparison: &Comparison, shown: Shown, brief: bool) -> (usize, String) {
    let metric = clean(&comparison.metric);
    let samples = samples(comparison);
    let effect = || match comparison.contrast.effect {
        Some(effect) if brief => format!("{metric} {}", tied(shown.effect(&effect))),
        Some(effect) => {
            let (value, interval) = (shown.effect(&effect), shown.interval_with_unit(&effect));
            let interval = tied(format!("95 % CI {interval}"));
            format!("{metric} {} ({interval})", tied(value))
        }
        None => metric.clone(),
    };
    match comparison.contrast.verdict {
        Verdict::Better => (0, effect()),
        Verdict::Worse => (1, effect()),
        Verdict::Differs => (2, effect()),
        Verdict::NoDifferenceBeyond { bound } => {
            let bound = tied(format!("at most {}", shown.limit(bound)));
            (3, format!("{metric} ({bound})"))
        }
        Verdict::CannotTell { .. } if brief => (4, metric),
        Verdict::CannotTell { more_blocks } => {
            let why = match (more_blocks, comparison.contrast.effect) {
                _ if is_constant(comparison) => {
                    "all values are equal, so their noise is unknown".to_owned()
                }
                _ if needed(comparison).is_some() => {
                    let need = needed(comparison).unwrap_or_default();
                    format!("a verdict needs at least {}", counted(need, samples))
                }
                (_, None) => "too few values".to_owned(),
                (Some(more), _) => {
                    let plural = if more == 1 { "" } else { "s" };
                    let more = tied(format!("{} more {samples}{plural}", grouped(more)));
                    format!("a verdict needs about {more}")
                }
                (None, _) => format!("even 10 000 {samples}s would not be enough"),
            };
            (4, format!("{metric} ({why})"))
        }
    }
}

/// Writes the outcome of each condition under which the trial fails.
fn fail_ifs(page: &mut Page, all: &[FailIfResult], statement: &TrialStatement) {
    for result in all {
        let arm = label(statement, result.arm);
        let (tone, label, verb) = match result.outcome {
            Outcome::Holds => (Tone::Alarm, "FAILED: ", "is true"),
            Outcome::DoesNotHold => (Tone::Good, "Passed: ", "is false"),
            Outcome::CannotTell => (Tone::Warning, "Undecided: ", "may be true"),
        };
        let condition = clean(&result.condition.to_string());
        let text = format!("--fail-if '{condition}' {verb} for {arm}");
        page.paragraph(tone, label, &text);
    }
}

/// Writes the subject of the trial, the numbers of runs and blocks, the machine, the start time and
/// the arms.
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
        "{}: {}, interleaved in {}, on {}, Linux {}, started {}",
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
        let settings = arms.map(|arm| format!("{} {}", clean(&arm.label), settings(arm)));
        let settings: Vec<String> = settings.collect();
        page.paragraph(Tone::Plain, "", &settings.join("; "));
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
        let text = format!("interrupted in block {last} of {}", trial.design.blocks);
        page.paragraph(Tone::Warning, "Ended early: ", &text);
    }
    if statement
        .successes
        .iter()
        .any(|success| success.succeeded < success.runs)
    {
        let rates = statement.successes.iter().map(|success| {
            let (label, runs) = (label(statement, success.arm), counted(success.runs, "run"));
            format!("{label} {} of {runs}", grouped(success.succeeded))
        });
        let rates: Vec<String> = rates.collect();
        page.paragraph(Tone::Warning, "Succeeded: ", &rates.join(", "));
    }
}

/// Writes how much the first arm's own runs varied before the trial.
fn noise(page: &mut Page, statement: &TrialStatement) {
    let trial = &statement.trial;
    let first_comparisons = statement
        .comparisons
        .iter()
        .filter(|comparison| comparison.arm == 1);
    let noises = first_comparisons.filter_map(|comparison| {
        let shown = Shown::new(unit_of(&trial.metrics, comparison), comparison.scale);
        let noise = tied(shown.size(comparison.noise?));
        Some(format!("{} {noise}", clean(&comparison.metric)))
    });
    let noises: Vec<String> = noises.collect();
    if !noises.is_empty() {
        let text = format!(
            "{} (standard deviation of differences between runs of {label}, from {} before the \
             trial)",
            noises.join(", "),
            counted(trial.design.noise_runs, "run"),
            label = label(statement, 0)
        );
        page.paragraph(Tone::Plain, "Noise: ", &text);
    }
}

fn settings(arm: &Arm) -> String {
    if arm.settings.is_empty() {
        return "unchanged".to_owned();
    }
    let settings = arm.settings.iter().map(|setting| {
        let target = match &*setting.target {
            "" | "the machine" => String::new(),
            target => format!(" ({})", clean(target)),
        };
        format!("{}={}{target}", clean(&setting.knob), clean(&setting.value))
    });
    settings.collect::<Vec<_>>().join(", ")
}

fn cells(page: &Page, [a, b, effect, interval, detectable, p, verdict]: [&str; 7]) -> Columns {
    if page.width() < ROOMY {
        return Columns::right([(9, a), (9, b), (9, effect), (7, verdict)]);
    }
    Columns::right([
        (9, a),
        (9, b),
        (8, effect),
        (17, interval),
        (9, detectable),
        (7, p),
        (7, verdict),
    ])
}

/// Writes a table with a row for each metric of each arm.
fn table(page: &mut Page, statement: &TrialStatement, room: Room) {
    let most = room.rows;
    let trial = &statement.trial;
    let mut before = None;
    for comparison in statement.comparisons.iter().take(most) {
        if before != Some(comparison.arm) {
            let (a, b) = (label(statement, 0), label(statement, comparison.arm));
            let versus = format!("{b} vs {a}");
            let titles = [&*a, &*b, &versus, "95 % CI", "detects", "p", "verdict"];
            let cells = cells(page, titles);
            page.headings(Tone::Strong, "", &cells);
            before = Some(comparison.arm);
        }
        let shown = Shown::new(unit_of(&trial.metrics, comparison), comparison.scale);
        let [a, b, effect, _] = shown.cells(
            comparison.first.map(|figures| figures.mean),
            comparison.second.map(|figures| figures.mean),
            comparison.contrast.effect,
        );
        let interval = comparison.contrast.effect.as_ref();
        let interval = interval.map(|effect| shown.interval_with_unit(effect));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let detectable = or_dash(comparison.detectable.map(|effect| shown.size(effect)));
        let p = or_dash(comparison.contrast.chance.map(chance));
        let tone = match comparison.contrast.verdict {
            Verdict::Better => Tone::Good,
            Verdict::Worse => Tone::Alarm,
            Verdict::Differs => Tone::Strong,
            Verdict::NoDifferenceBeyond { .. } => Tone::Plain,
            Verdict::CannotTell { .. } => Tone::Warning,
        };
        let verdict = verdict_word(comparison.contrast.verdict);
        let interval = or_dash(interval);
        let cells = cells(page, [&a, &b, &effect, &interval, &detectable, &p, verdict]);
        page.row(tone, 2, &clean(&comparison.metric), &cells);
    }
    let left = statement.comparisons.len().saturating_sub(most);
    if left > 0 {
        let text = format!("{} (--format json)", counted(left as u64, "more row"));
        page.paragraph(Tone::Faint, "  ", &text);
    }
    if page.width() >= ROOMY && !room.brief && !statement.comparisons.is_empty() {
        let text = "detects: smallest effect detectable with 80 % power. p: chance of a \
            difference at least this large if the arms were equal.";
        page.paragraph(Tone::Faint, "", text);
    }
}

/// Returns the word for a verdict in a table.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Differs => "differs",
        Verdict::NoDifferenceBeyond { .. } => "equal",
        Verdict::CannotTell { .. } => "unclear",
    }
}

/// Compares the effects that the model predicted with the measured effects. Returns texts, each
/// with the label of its arm.
fn predictions(statement: &TrialStatement, brief: bool) -> Vec<(String, String)> {
    let predictions = statement.comparisons.iter().filter_map(|comparison| {
        let prediction = comparison.predicted.as_ref()?;
        let shown = Shown::new(
            unit_of(&statement.trial.metrics, comparison),
            comparison.scale,
        );
        let with_interval = |effect: &Effect| {
            if brief {
                return tied(shown.effect(effect));
            }
            let interval = tied(shown.interval_with_unit(effect));
            format!("{} ({interval})", tied(shown.effect(effect)))
        };
        let predicted = with_interval(&prediction.effect);
        let proven = match (&comparison.contrast.effect, prediction.error) {
            (Some(effect), Some(error)) => {
                let error = tied(shown.error(error));
                format!(
                    "measured {}, so the error is {error}",
                    with_interval(effect)
                )
            }
            _ => "no measured value to compare with".to_owned(),
        };
        let from = if brief {
            String::new()
        } else {
            format!(", for the work in {}", clean(&prediction.load))
        };
        let (metric, settings) = (
            clean(&comparison.metric),
            clean(&prediction.settings.join(", ")),
        );
        let text = format!("{metric} {predicted} with {settings}{from}; {proven}");
        Some((text, label(statement, comparison.arm)))
    });
    predictions.collect()
}

/// Writes whether the settings were restored. Settings that were restored are only counted.
fn restored(page: &mut Page, statement: &TrialStatement) {
    let all = &statement.restored;
    let back = all
        .iter()
        .filter(|setting| is_back(setting.outcome))
        .count();
    if back > 0 {
        let text = counted(back as u64, "setting");
        page.paragraph(Tone::Good, "Restored: ", &text);
    }
    for setting in all.iter().filter(|setting| !is_back(setting.outcome)) {
        undone(page, setting);
    }
}

/// Writes the results of all measured runs, block by block.
fn runs(page: &mut Page, statement: &TrialStatement) {
    let trial = &statement.trial;
    for (place, metric) in trial.metrics.iter().enumerate() {
        page.paragraph(Tone::Strong, "", &clean(&metric.id));
        let runs = trial.runs.iter();
        let runs = runs.filter(|run| run.purpose == RunPurpose::Measured);
        let mut runs: Vec<_> = runs.collect();
        runs.sort_by_key(|run| (run.block, run.position));
        for block in runs.chunk_by(|a, b| a.block == b.block) {
            let values = block.iter().map(|run| {
                let measured = run.values.get(place).copied().flatten();
                let measured =
                    measured.map_or_else(|| "-".to_owned(), |figure| value(metric.unit, figure));
                let failed = if run.succeeded { "" } else { " failed" };
                tied(format!("{} {measured}{failed}", label(statement, run.arm)))
            });
            let values: Vec<String> = values.collect();
            let number = block.first().map_or(0, |run| run.block + 1);
            page.paragraph(Tone::Plain, &format!("  {number:>4}  "), &values.join("  "));
        }
    }
}
