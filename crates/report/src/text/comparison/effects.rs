//! Verdicts on the effects in a comparison, as sentences and as a table.

use ticktax_model::comparison::{ArmEffect, Comparison, Verdict};

use super::super::block::Columns;
use super::super::numbers::{counted, grouped};
use super::super::page::{Page, Tone, clean, tied};
use super::super::value::{Shown, chance};
use super::checks::{is_constant, is_rounded, needed, samples};
use super::verdict_word;

/// Minimum page width for the columns that show confidence intervals, detectable effects and
/// probabilities.
pub(super) const ROOMY: usize = 72;

/// Returns the label of the arm with the index `arm`, or `?` if the arm does not exist.
pub(super) fn label(comparison: &Comparison, arm: usize) -> String {
    let arm = comparison.arms.get(arm);
    arm.map_or_else(|| "?".to_owned(), |arm| clean(&arm.label))
}

/// Returns the name of an effect's metric.
pub(super) fn metric_name(comparison: &Comparison, effect: &ArmEffect) -> String {
    let metric = comparison.metrics.get(effect.metric);
    metric.map_or_else(String::new, |metric| clean(&metric.id))
}

/// Returns the format for an effect.
pub(super) fn shown(comparison: &Comparison, effect: &ArmEffect) -> Shown {
    Shown::new(comparison.unit(effect), effect.scale)
}

pub(super) fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Alarm,
        Verdict::Differs => Tone::Strong,
        Verdict::NoDifferenceBeyond { .. } => Tone::Plain,
        Verdict::CannotTell { .. } => Tone::Warning,
    }
}

/// Writes the verdicts on each arm, with one sentence per kind of verdict.
pub(super) fn verdicts(page: &mut Page, comparison: &Comparison, brief: bool) {
    for arm in comparison.effects.chunk_by(|a, b| a.arm == b.arm) {
        let mut sentences: [Vec<String>; 5] = Default::default();
        for effect in arm {
            let (place, text) = clause(comparison, effect, brief);
            sentences[place].push(text);
        }
        let (first, second) = (
            label(comparison, arm[0].base),
            label(comparison, arm[0].arm),
        );
        let versus = format!("{second} vs {first}");
        for (place, clauses) in sentences.iter().enumerate() {
            let what = clauses.join(", ");
            let (tone, text) = match place {
                _ if clauses.is_empty() => continue,
                0 => (Tone::Good, format!("{second} is better: {what}.")),
                1 => (Tone::Alarm, format!("{second} is worse: {what}.")),
                2 => (Tone::Strong, format!("{second} differs: {what}.")),
                3 => (Tone::Strong, format!("{versus}, no difference: {what}.")),
                _ => (Tone::Warning, format!("{versus}, unclear: {what}.")),
            };
            page.paragraph(tone, "", &text);
        }
    }
    if comparison.effects.is_empty() {
        page.paragraph(Tone::Warning, "", "Nothing was compared.");
    }
}

/// Formats an effect as part of a sentence, and returns it with the index of that sentence.
fn clause(comparison: &Comparison, compared: &ArmEffect, brief: bool) -> (usize, String) {
    let metric = metric_name(comparison, compared);
    let shown = shown(comparison, compared);
    let effect = || match compared.contrast.effect {
        Some(effect) if brief => format!("{metric} {}", tied(shown.effect(&effect))),
        Some(effect) => {
            let (value, interval) = (shown.effect(&effect), shown.interval_with_unit(&effect));
            let interval = tied(format!("95 % CI {interval}"));
            format!("{metric} {} ({interval})", tied(value))
        }
        None => metric.clone(),
    };
    match compared.contrast.verdict {
        Verdict::Better => (0, effect()),
        Verdict::Worse => (1, effect()),
        Verdict::Differs => (2, effect()),
        Verdict::NoDifferenceBeyond { bound } => {
            let bound = tied(format!("at most {}", shown.limit(bound)));
            (3, format!("{metric} ({bound})"))
        }
        Verdict::CannotTell { .. } if brief => (4, metric),
        Verdict::CannotTell { more_blocks } => {
            (4, format!("{metric} ({})", reason(compared, more_blocks)))
        }
    }
}

/// Explains why a verdict is open.
fn reason(effect: &ArmEffect, more_blocks: Option<u64>) -> String {
    let samples = samples(effect);
    match (more_blocks, effect.contrast.effect) {
        _ if is_constant(effect) => "all values are equal, so their noise is unknown".to_owned(),
        _ if needed(effect).is_some() => {
            let need = needed(effect).unwrap_or_default();
            format!("a verdict needs at least {}", counted(need, samples))
        }
        (_, None) => "too few values".to_owned(),
        _ if is_rounded(effect) => "the histograms' bins are too wide".to_owned(),
        (Some(more), _) => {
            let plural = if more == 1 { "" } else { "s" };
            let more = tied(format!("{} more {samples}{plural}", grouped(more)));
            format!("a verdict needs about {more}")
        }
        (None, _) => format!("even 10 000 {samples}s would not be enough"),
    }
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

/// Writes a table with a row for each metric of each arm, and at most `most` rows.
pub(super) fn table(page: &mut Page, comparison: &Comparison, most: usize, brief: bool) {
    let effects = &comparison.effects;
    let mut before = None;
    for effect in effects.iter().take(most) {
        if before != Some(effect.arm) {
            let (a, b) = (
                label(comparison, effect.base),
                label(comparison, effect.arm),
            );
            let versus = format!("{b} vs {a}");
            let titles = [&*a, &*b, &versus, "95 % CI", "detects", "p", "verdict"];
            let cells = cells(page, titles);
            page.headings(Tone::Strong, "", &cells);
            before = Some(effect.arm);
        }
        let shown = shown(comparison, effect);
        let mean = |arm: usize| comparison.arms.get(arm)?.value(effect.metric);
        let difference = effect.contrast.effect;
        let [a, b, change, _] = shown.cells(mean(effect.base), mean(effect.arm), difference);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let interval = or_dash(difference.map(|effect| shown.interval_with_unit(&effect)));
        let detectable = or_dash(effect.detectable.map(|effect| shown.size(effect)));
        let p = or_dash(effect.contrast.chance.map(chance));
        let verdict = effect.contrast.verdict;
        let word = verdict_word(verdict);
        let cells = cells(page, [&a, &b, &change, &interval, &detectable, &p, word]);
        page.row(tone(verdict), 2, &metric_name(comparison, effect), &cells);
    }
    let left = effects.len().saturating_sub(most);
    if left > 0 {
        let text = format!("{} (--format json)", counted(left as u64, "more row"));
        page.paragraph(Tone::Faint, "  ", &text);
    }
    if page.width() >= ROOMY && !brief && !effects.is_empty() {
        let text = "detects: smallest effect detectable with 80 % power. p: chance of a \
            difference at least this large if the arms were equal.";
        page.paragraph(Tone::Faint, "", text);
    }
}
