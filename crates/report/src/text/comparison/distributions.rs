//! The page that shows a comparison of two distributions.

use ticktax_model::comparison::{
    ArmEffect, ComparedDistribution, Comparison, DistributionsRecord, NoInterval, Scale, Unit,
    WithoutInterval,
};

use super::super::TextStyle;
use super::super::block::{Columns, Written};
use super::super::numbers::{counted, grouped};
use super::super::page::{Page, Tone, clean, tied};
use super::super::screen::narrowed;
use super::super::value::{Shown, chance, value};
use super::checks::{checks, is_rounded};
use super::effects::{ROOMY, label, shown, tone, verdicts};
use super::numbers::terms;
use super::{arm_name, verdict_word};

/// Explanation of the terms on the page.
const WORDS: &str = "p99: the smallest value that at least 99 % of the values do not exceed. B vs \
    A: the ratio of the two percentiles minus one, or their difference if a value is 0. 95 % CI: \
    confidence interval, from the ranks that enclose each percentile (binomial distribution) and, \
    for the difference, MOVER (Zou and Donner 2008). It is extended by the width of the \
    histogram's bins. p: probability of a difference this large by chance alone, corrected for \
    all rows (Holm). better, worse, differs: p is at most 5 % and the interval excludes 0. equal: \
    any difference is within the interval, which is no larger than --difference. unclear: none of \
    these. All this assumes independent values. Latencies of one run are often correlated, and \
    then the true intervals are wider.";
const ASSUMED: &str = "The intervals assume independent values. Latencies of one run are often \
    correlated, so repeat the runs before you rely on a small difference.";

/// Maximum number of effects whose intervals are part of the verdict, not only of the table.
const MOST_IN_FULL: usize = 4;

/// Renders a comparison of two distributions as a page that ends with a line break.
pub(super) fn page(
    comparison: &Comparison,
    record: &DistributionsRecord,
    style: &TextStyle,
) -> Written {
    let mut page = Page::new(narrowed(style));
    if comparison.effects.is_empty() {
        let text = "No verdict: no percentile has a confidence interval in both files.";
        page.paragraph(Tone::Warning, "", text);
    } else {
        let rounded = comparison
            .effects
            .iter()
            .filter(|effect| is_rounded(effect));
        let is_brief = comparison.effects.len() > MOST_IN_FULL || rounded.count() > 1;
        verdicts(&mut page, comparison, is_brief);
    }
    for (place, arm) in comparison.arms.iter().enumerate() {
        let format = arm.setting("format").map(clean).unwrap_or_default();
        let count = match &*record.compared {
            [only] => count(only, place).map_or_else(String::new, |count| format!(", {count}")),
            _ => String::new(),
        };
        let text = format!("{} ({format}{count})", arm_name(comparison, arm));
        page.paragraph(Tone::Plain, "", &text);
    }
    table(&mut page, comparison, record);
    for text in reasons(comparison, record) {
        page.paragraph(Tone::Plain, "No interval: ", &text);
    }
    for text in checks(comparison) {
        page.paragraph(Tone::Warning, "Check: ", &text);
    }
    if !comparison.effects.is_empty() {
        page.paragraph(Tone::Faint, "", ASSUMED);
    }
    terms(&mut page, WORDS, style);
    page.finish()
}

/// Returns the number of values in an arm's distribution; `None` if it is unknown.
fn count(compared: &ComparedDistribution, arm: usize) -> Option<String> {
    let count = compared.counts.get(arm).copied().flatten()?;
    Some(format!("{} values", grouped(count)))
}

fn cells(page: &Page, [a, b, effect, interval, p, verdict]: [&str; 6]) -> Columns {
    if page.width() < ROOMY {
        return Columns::right([(9, a), (9, b), (9, effect), (7, verdict)]);
    }
    Columns::right([
        (9, a),
        (9, b),
        (9, effect),
        (20, interval),
        (7, p),
        (7, verdict),
    ])
}

/// Writes a row for each percentile. If there are several distributions, each has a heading.
fn table(page: &mut Page, comparison: &Comparison, record: &DistributionsRecord) {
    let (a, b) = (label(comparison, 0), label(comparison, 1));
    let versus = format!("{b} vs {a}");
    let titles = cells(page, [&a, &b, &versus, "95 % CI", "p", "verdict"]);
    page.headings(Tone::Strong, "", &titles);
    let mut written = "";
    for (index, metric) in comparison.metrics.iter().enumerate() {
        let (distribution, percentile) = metric.id.rsplit_once(' ').unwrap_or(("", &metric.id));
        if distribution != written {
            written = distribution;
            let mut all = record.compared.iter();
            let compared = all.find(|compared| compared.name == distribution);
            let counts = [0, 1].map(|arm| compared.and_then(|compared| count(compared, arm)));
            let counts = match counts {
                [Some(first), Some(second)] => format!(" ({a} {first}, {b} {second})"),
                _ => String::new(),
            };
            let text = format!("{}{counts}", clean(distribution));
            page.paragraph(Tone::Plain, "", &text);
        }
        let of = |arm: usize| comparison.arms.get(arm)?.value(index);
        let shown_value =
            |arm: usize| of(arm).map_or_else(|| "-".to_owned(), |found| value(metric.unit, found));
        let mut effects = comparison.effects.iter();
        let effect = effects.find(|effect| effect.metric == index);
        let [change, interval, p, verdict] = match effect {
            Some(effect) => judged(comparison, effect),
            None => [
                plain_change(metric.unit, of(0), of(1)),
                dash(),
                dash(),
                dash(),
            ],
        };
        let tone = effect.map_or(Tone::Plain, |effect| tone(effect.contrast.verdict));
        let row = [
            &*shown_value(0),
            &shown_value(1),
            &change,
            &interval,
            &p,
            &verdict,
        ];
        let cells = cells(page, row);
        page.row(tone, 2, &clean(percentile), &cells);
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats an effect, its interval, its probability and its verdict.
fn judged(comparison: &Comparison, effect: &ArmEffect) -> [String; 4] {
    let shown = shown(comparison, effect);
    let found = effect.contrast.effect;
    [
        found.map_or_else(dash, |effect| shown.effect(&effect)),
        found.map_or_else(dash, |effect| shown.interval_with_unit(&effect)),
        effect.contrast.chance.map_or_else(dash, chance),
        verdict_word(effect.contrast.verdict).to_owned(),
    ]
}

/// Formats the difference of two values that have no interval.
fn plain_change(unit: Unit, first: Option<f64>, second: Option<f64>) -> String {
    let Some((first, second)) = first.zip(second) else {
        return dash();
    };
    if first.total_cmp(&second).is_eq() {
        "0 %".to_owned()
    } else if first > 0.0 && second > 0.0 {
        Shown::new(unit, Scale::Relative).change(second / first - 1.0)
    } else {
        Shown::new(unit, Scale::Absolute).change(second - first)
    }
}

/// Describes why metrics have no interval, with one sentence per reason.
fn reasons(comparison: &Comparison, record: &DistributionsRecord) -> Vec<String> {
    let file = |arm: usize| label(comparison, arm);
    let text = |reason: NoInterval| match reason {
        NoInterval::PercentilesOnly { arm } => {
            format!("{} has percentiles but no counts", file(arm))
        }
        NoInterval::Maximum => "a maximum grows with the number of values".to_owned(),
        NoInterval::TooFew { arm, have, need } => format!(
            "{} has only {}, and an interval needs {}",
            file(arm),
            tied(counted(have, "value")),
            grouped(need)
        ),
        NoInterval::OutOfRange { arm } => {
            format!(
                "it is above all bins of {}'s histogram; record with more bins",
                file(arm)
            )
        }
    };
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for WithoutInterval { metric, reason } in &record.without_interval {
        let metric = comparison.metrics.get(*metric);
        let metric = metric.map(|metric| clean(&metric.id)).unwrap_or_default();
        let text = text(*reason);
        match texts.iter_mut().find(|(other, _)| *other == text) {
            Some((_, metrics)) => metrics.push(metric),
            None => texts.push((text, vec![metric])),
        }
    }
    let texts = texts.into_iter();
    texts
        .map(|(text, metrics)| format!("{}: {text}", metrics.join(", ")))
        .collect()
}
