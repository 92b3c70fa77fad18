//! The page about a trial.

use ticktax_model::comparison::{
    Comparison, Effect, Outcome, ResourceEffect, RunPurpose, Scale, StoppedEarly, TrialRecord,
    Verdict,
};

use super::super::TextStyle;
use super::super::block::{Columns, Written};
use super::super::knob::{is_back, undone};
use super::super::numbers::{counted, date, grouped};
use super::super::page::{Page, Tone, clean, tied};
use super::super::screen::{explained, fitted, narrowed};
use super::super::value::{Shown, chance, value};
use super::checks::checks;
use super::effects::{label, metric_name, shown, table, verdicts};
use super::settings;
use crate::view::{Section, View};

/// A level of detail of the first screen.
#[derive(Clone, Copy)]
struct Room {
    /// Maximum number of rows in the table.
    rows: usize,
    /// Maximum number of checks shown.
    checks: usize,
    /// Whether to put all arms on one line, and to leave out the noise, the reasons and the
    /// confidence intervals, which the table also shows.
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

/// Renders a trial as a page that ends with a line break.
pub(super) fn page(trial: &Comparison, record: &TrialRecord, style: &TextStyle) -> Written {
    if style.view == View::First {
        let text = fitted(&ROOMS, |room| {
            let mut page = Page::new(narrowed(style));
            answer(&mut page, trial, record, room);
            page.finish()
        });
        return explained(text, WORDS, style);
    }
    let mut page = Page::new(*style);
    if style.view == View::Full {
        answer(&mut page, trial, record, EVERYTHING);
        page.section("Runs, by metric and block");
        runs(&mut page, trial, record);
    }
    if style.view.shows(Section::Legend) {
        page.section("Terms");
        page.legend(WORDS);
    }
    page.finish()
}

/// Writes the verdicts and what they are based on.
fn answer(page: &mut Page, trial: &Comparison, record: &TrialRecord, room: Room) {
    verdicts(page, trial, room.brief);
    fail_ifs(page, trial, record);
    design(page, trial, record, room.brief);
    table(page, trial, room.rows, room.brief);
    reasons(page, trial, record, room.rows.min(9));
    let most = if room.brief { 1 } else { room.rows };
    for (text, arm) in predictions(trial, room.brief).iter().take(most) {
        page.paragraph(Tone::Plain, &format!("Prediction for {arm}: "), text);
    }
    let doubts = checks(trial);
    for text in doubts.iter().take(room.checks) {
        page.paragraph(Tone::Warning, "Check: ", text);
    }
    let left = doubts.len().saturating_sub(room.checks);
    if left > 0 {
        let text = format!("{} (--format json)", counted(left as u64, "more check"));
        page.paragraph(Tone::Faint, "", &text);
    }
    restored(page, record);
}

/// Writes which resources the arms used differently, at most `most` for each arm.
fn reasons(page: &mut Page, trial: &Comparison, record: &TrialRecord, most: usize) {
    for of_arm in record.reasons.chunk_by(|a, b| a.arm == b.arm) {
        let (first, arm) = (label(trial, 0), label(trial, of_arm[0].arm));
        let versus = format!("{arm} - {first}");
        let is_different = |reason: &&ResourceEffect| {
            let verdict = reason.contrast.verdict;
            matches!(verdict, Verdict::Better | Verdict::Worse | Verdict::Differs)
        };
        let name = |reason: &ResourceEffect| clean(&reason.resource.id);
        let (different, others): (Vec<_>, Vec<_>) = of_arm.iter().partition(is_different);
        let (shown, left) = different.split_at(most.min(different.len()));
        if !shown.is_empty() {
            let titles = Columns::right([(9, &*first), (9, &arm), (9, &versus), (7, "p")]);
            page.headings(Tone::Strong, "Used per run", &titles);
        }
        for reason in shown {
            // Differences in the resource's unit can be added up, unlike percentages.
            let format = Shown::new(reason.resource.unit, Scale::Absolute);
            let [first, value] = reason.values;
            let change = first.zip(value);
            let change = change.map(|(first, value)| Effect::within(value - first, 0.0));
            let [a, b, change, _] = format.cells(first, value, change);
            let p = reason
                .contrast
                .chance
                .map_or_else(|| "-".to_owned(), chance);
            let cells = Columns::right([(9, &*a), (9, &b), (9, &change), (7, &p)]);
            page.row(Tone::Plain, 2, &name(reason), &cells);
        }
        let names = |reasons: &[&ResourceEffect]| -> String {
            let names: Vec<String> = reasons.iter().map(|reason| name(reason)).collect();
            names.join(", ")
        };
        if !left.is_empty() {
            page.paragraph(Tone::Faint, "Also different: ", &names(left));
        }
        if !others.is_empty() {
            let title = format!("No proven difference between {first} and {arm}: ");
            page.paragraph(Tone::Faint, &title, &names(&others));
        }
    }
}

/// Writes the outcome of each condition that makes the trial fail.
fn fail_ifs(page: &mut Page, trial: &Comparison, record: &TrialRecord) {
    for result in &record.fail_if {
        let arm = label(trial, result.arm);
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

/// Writes the trial's subject, the numbers of runs and blocks, the machine, the start time and the
/// arms.
fn design(page: &mut Page, trial: &Comparison, record: &TrialRecord, brief: bool) {
    let machine = trial.machine.clone().unwrap_or_default();
    let host = match &*machine.host {
        "" => "this machine",
        host => host,
    };
    let text = format!(
        "{}: {}, interleaved in {}, on {}, Linux {}, started {}",
        clean(&record.subject),
        counted(trial.arms.iter().map(|arm| arm.runs).sum(), "run"),
        counted(made(record), "block"),
        clean(host),
        clean(&machine.kernel),
        date(trial.began_unix.unwrap_or_default()),
    );
    page.paragraph(Tone::Plain, "", &text);
    let arms = trial.arms.iter();
    if brief {
        let settings = arms.map(|arm| format!("{} {}", clean(&arm.label), settings(arm, ", ")));
        let settings: Vec<String> = settings.collect();
        page.paragraph(Tone::Plain, "", &settings.join("; "));
    } else {
        for arm in arms {
            let label = format!("{}  ", clean(&arm.label));
            page.paragraph(Tone::Plain, &label, &settings(arm, ", "));
        }
        noise(page, trial, record);
    }
    let (last, planned) = (made(record), record.design.blocks);
    if record.interrupted {
        let text = format!("interrupted in block {last} of {planned}");
        page.paragraph(Tone::Warning, "Ended early: ", &text);
    }
    match record.stopped {
        Some(StoppedEarly::Certain) => {
            let text = format!("every verdict was certain after {last} of {planned} blocks");
            page.paragraph(Tone::Plain, "Ended early: ", &text);
        }
        Some(StoppedEarly::MaxTime) => {
            let text = format!("--max-time was over after {last} of {planned} blocks");
            page.paragraph(Tone::Warning, "Ended early: ", &text);
        }
        None => {}
    }
    if trial.arms.iter().any(|arm| arm.failed > 0) {
        let rates = trial.arms.iter().map(|arm| {
            let (label, runs) = (clean(&arm.label), counted(arm.runs, "run"));
            format!("{label} {} of {runs}", grouped(arm.runs - arm.failed))
        });
        let rates: Vec<String> = rates.collect();
        page.paragraph(Tone::Warning, "Succeeded: ", &rates.join(", "));
    }
}

/// Returns the number of blocks that were begun.
fn made(record: &TrialRecord) -> u64 {
    let blocks = record.runs.iter();
    let blocks = blocks.filter(|run| run.purpose == RunPurpose::Measured);
    blocks.map(|run| run.block + 1).max().unwrap_or(0)
}

/// Writes how much the first arm's own runs varied before the trial.
fn noise(page: &mut Page, trial: &Comparison, record: &TrialRecord) {
    let of_second = trial.effects.iter().filter(|effect| effect.arm == 1);
    let noises = of_second.filter_map(|effect| {
        let noise = tied(shown(trial, effect).size(effect.noise?));
        Some(format!("{} {noise}", metric_name(trial, effect)))
    });
    let noises: Vec<String> = noises.collect();
    if !noises.is_empty() {
        let text = format!(
            "{} (standard deviation of differences between runs of {label}, from {} before the \
             trial)",
            noises.join(", "),
            counted(record.design.noise_runs, "run"),
            label = label(trial, 0)
        );
        page.paragraph(Tone::Plain, "Noise: ", &text);
    }
}

/// Compares the effects predicted by the model with the measured effects. Returns texts, each with
/// its arm's label.
fn predictions(trial: &Comparison, brief: bool) -> Vec<(String, String)> {
    let predictions = trial.effects.iter().filter_map(|of_arm| {
        let prediction = of_arm.predicted.as_ref()?;
        let shown = shown(trial, of_arm);
        let with_interval = |effect: &Effect| {
            if brief {
                return tied(shown.effect(effect));
            }
            let interval = tied(shown.interval_with_unit(effect));
            format!("{} ({interval})", tied(shown.effect(effect)))
        };
        let predicted = with_interval(&prediction.effect);
        let proven = match (&of_arm.contrast.effect, prediction.error) {
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
            metric_name(trial, of_arm),
            clean(&prediction.settings.join(", ")),
        );
        let text = format!("{metric} {predicted} with {settings}{from}; {proven}");
        Some((text, label(trial, of_arm.arm)))
    });
    predictions.collect()
}

/// Writes whether the settings were restored. Settings that were restored are only counted.
fn restored(page: &mut Page, record: &TrialRecord) {
    let all = &record.restored;
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
fn runs(page: &mut Page, trial: &Comparison, record: &TrialRecord) {
    for (place, metric) in trial.metrics.iter().enumerate() {
        page.paragraph(Tone::Strong, "", &clean(&metric.id));
        let runs = record.runs.iter();
        let runs = runs.filter(|run| run.purpose == RunPurpose::Measured);
        let mut runs: Vec<_> = runs.collect();
        runs.sort_by_key(|run| (run.block, run.position));
        for block in runs.chunk_by(|a, b| a.block == b.block) {
            let values = block.iter().map(|run| {
                let measured = run.values.get(place).copied().flatten();
                let measured =
                    measured.map_or_else(|| "-".to_owned(), |figure| value(metric.unit, figure));
                let failed = if run.succeeded { "" } else { " failed" };
                tied(format!("{} {measured}{failed}", label(trial, run.arm)))
            });
            let values: Vec<String> = values.collect();
            let number = block.first().map_or(0, |run| run.block + 1);
            page.paragraph(Tone::Plain, &format!("  {number:>4}  "), &values.join("  "));
        }
    }
}
