//! Describes doubts about a verdict in words.

use ticktax_model::comparison::{ArmEffect, Check, Comparison, Experiment};

use super::super::numbers::{counted, percent};
use super::super::page::tied;
use super::super::value::chance;
use super::effects::{label, metric_name, shown};
use super::listed;

/// Returns whether all values of both arms were equal.
pub(super) fn is_constant(effect: &ArmEffect) -> bool {
    let mut checks = effect.checks.iter();
    checks.any(|check| matches!(check, Check::Constant { .. }))
}

/// Returns whether the bins in which the values were counted are too wide for a verdict.
pub(super) fn is_rounded(effect: &ArmEffect) -> bool {
    let mut checks = effect.checks.iter();
    checks.any(|check| matches!(check, Check::Rounded { .. }))
}

/// Returns the minimum number of observations that a verdict needs, if there are fewer.
pub(super) fn needed(effect: &ArmEffect) -> Option<u64> {
    effect.checks.iter().find_map(|check| match check {
        Check::TooFew { need, .. } => Some(*need),
        _ => None,
    })
}

/// Returns the word for an observation, which is either a block of runs or a value.
pub(super) fn samples(effect: &ArmEffect) -> &'static str {
    if effect.blocks.is_some() {
        "block"
    } else {
        "value"
    }
}

/// Describes the doubts about all verdicts, without duplicates.
pub(super) fn checks(comparison: &Comparison) -> Vec<String> {
    let mut texts: Vec<String> = rounded(comparison);
    for effect in &comparison.effects {
        let is_listed = |check: &&Check| matches!(check, Check::Rounded { .. });
        for check in effect.checks.iter().filter(|check| !is_listed(check)) {
            let text = check_text(check, comparison, effect);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    texts
}

/// Describes the metrics whose bins are too wide, with one sentence for each error.
fn rounded(comparison: &Comparison) -> Vec<String> {
    let mut errors: Vec<(String, Vec<String>)> = Vec::new();
    for effect in &comparison.effects {
        let found = effect.checks.iter().find_map(|check| match check {
            Check::Rounded { error } => Some(shown(comparison, effect).of_metric(*error)),
            _ => None,
        });
        let Some(error) = found else {
            continue;
        };
        let metric = metric_name(comparison, effect);
        match errors.iter_mut().find(|(other, _)| *other == error) {
            Some((_, metrics)) => metrics.push(metric),
            None => errors.push((error, vec![metric])),
        }
    }
    let errors = errors.into_iter();
    errors
        .map(|(error, metrics)| rounded_text(&listed(&metrics), &error))
        .collect()
}

fn rounded_text(metrics: &str, error: &str) -> String {
    let error = tied(error.to_owned());
    format!("the histograms' bins are too wide to know {metrics} better than to {error}")
}

/// Describes a check, which is a doubt about a verdict, in words.
fn check_text(check: &Check, comparison: &Comparison, effect: &ArmEffect) -> String {
    let [a, b] = &[effect.base, effect.arm].map(|arm| label(comparison, arm));
    let metric = metric_name(comparison, effect);
    let about = match &comparison.experiment {
        Experiment::Numbers { .. } => "the metric".to_owned(),
        _ if comparison.arms.len() > 2 => format!("{metric} of {b}"),
        _ => metric,
    };
    let (shown, samples) = (shown(comparison, effect), samples(effect));
    let p = |probability: f64| tied(format!("p = {}", chance(probability)));
    let which = |first: bool, second: bool| match (first, second) {
        (true, true) => format!("{a} and {b}"),
        (true, false) => a.clone(),
        (false, _) => b.clone(),
    };
    match *check {
        Check::TooFew { have, need } => format!(
            "{about} has only {}; a verdict needs at least {need}",
            counted(have, samples)
        ),
        Check::Missing { runs } => {
            format!("{about} could not be measured in {}", counted(runs, "run"))
        }
        Check::Constant { value } => {
            format!("{about} was {} in every run", shown.of_metric(value))
        }
        Check::Identical => format!("{about} has identical values in {a} and {b}"),
        Check::Drift { change, chance } => format!(
            "{about} drifted by {} over the trial ({}); mirrored blocks cancel a steady drift",
            tied(shown.change(change)),
            p(chance)
        ),
        Check::Order { change, chance } => format!(
            "the effect on {about} depends on which arm starts the block: {} ({}); use a longer \
             settling time or warm-up",
            tied(shown.change(change)),
            p(chance)
        ),
        Check::Sorted {
            first,
            second,
            chance,
        } => format!(
            "the values of {} are in sorted order ({}): {about} rose or fell from each run to the \
             next",
            which(first, second),
            p(chance)
        ),
        Check::Rounded { error } => rounded_text(&about, &shown.of_metric(error)),
        Check::Failures {
            first_share,
            second_share,
            chance,
        } => format!(
            "{} of {a}'s runs and {} of {b}'s failed ({}); only successful runs are compared",
            tied(percent(first_share)),
            tied(percent(second_share)),
            p(chance)
        ),
    }
}
