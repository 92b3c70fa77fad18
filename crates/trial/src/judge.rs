//! Judges the runs of a trial.
//!
//! When two arms are compared, each block yields one observation: the difference between them. If
//! all values are positive, the observation is the logarithm of their ratio, so that a slowdown of
//! the machine affects both arms equally. A signed-rank test of the observations decides whether
//! there is an effect ([`signed_rank`]). The size of the effect is the mean of the observations,
//! with a bootstrap interval ([`mean_interval`]). A difference counts only if two criteria agree:
//! the test, corrected for all comparisons (Holm), and the interval.

use ticktax_analysis::judge::{Evidence, FALSE_VERDICTS, corrected};
use ticktax_model::comparison::{
    ArmEffect, Better, Check, Comparison, Contrast, Experiment, FailIf, FailIfResult, Figure,
    ResourceEffect, RunPurpose, Scale, Trial, Verdict,
};

use super::blocks::{Blocks, Pair, figures};
use super::checks;
use ticktax_experiment::detectable::{
    Detectable, additive_difference, blocks_for_a_verdict, detectable, fewest_blocks,
    mean_effect_at, scale_of, sum_of,
};
use ticktax_experiment::statistics::{mean, signed_rank, variance};

/// Judges a trial and evaluates the conditions in `fail_if`. `version` is the version of ticktax
/// that ran the trial.
///
/// Leaves `restored` empty. The caller must fill it in, because the caller changed the settings.
pub fn judge(mut trial: Trial, fail_if: &[FailIf], version: &str) -> Comparison {
    summarize(&mut trial);
    let arms = 1..trial.arms.len().max(1);
    let count = arms.len() * trial.metrics.len();
    let tests = count * usize::try_from(trial.record.design.looks.max(1)).unwrap_or(1);
    let mut drafts: Vec<Draft> = arms
        .flat_map(|arm| (0..trial.metrics.len()).map(move |metric| (arm, metric)))
        .map(|(arm, metric)| compare(&trial, arm, metric, tests))
        .collect();
    // Every look at the results spends an equal part of the probability of a false verdict (Pocock
    // 1977 has equal parts; the sum as a bound is Bonferroni's).
    let looks = trial.record.design.looks.max(1) as f64;
    let at_each_look = |chance: f64| (chance * looks).min(1.0);
    let chances: Vec<Option<f64>> = drafts
        .iter()
        .map(|draft| draft.effect.chance.map(at_each_look))
        .collect();
    for (draft, corrected) in drafts.iter_mut().zip(corrected(&chances, count)) {
        draft.effect.contrast.chance = corrected;
        draft.conclude(trial.record.design.difference, tests);
    }
    trial.record.reasons = reasons(&trial, version);
    let effects: Vec<ArmEffect> = drafts.into_iter().map(|draft| draft.effect).collect();
    let first = |metric: usize| trial.arms.first()?.value(metric);
    let fail_if = fail_if.iter().flat_map(|condition| {
        let matching = effects.iter();
        let matching =
            matching.filter(|effect| trial.metrics[effect.metric].id == condition.metric);
        matching.map(|effect| FailIfResult {
            condition: condition.clone(),
            arm: effect.arm,
            outcome: condition.outcome(effect, first(effect.metric).unwrap_or_default()),
        })
    });
    let fail_if = fail_if.collect();
    trial.record.fail_if = fail_if;
    Comparison {
        machine: Some(trial.machine),
        began_unix: Some(trial.began_unix),
        arms: trial.arms,
        metrics: trial.metrics,
        effects,
        ..Comparison::new(version, Experiment::Trial(Box::new(trial.record)))
    }
}

/// Judges the use of resources as another trial with the same runs, so that their number does not
/// change the verdict on the metrics.
fn reasons(trial: &Trial, version: &str) -> Vec<ResourceEffect> {
    if trial.record.resources.is_empty() {
        return Vec::new();
    }
    let mut other = trial.clone();
    other.metrics = std::mem::take(&mut other.record.resources);
    for run in &mut other.record.runs {
        run.values = std::mem::take(&mut run.resources);
    }
    let judged = judge(other, &[], version);
    let mean = |arm: usize, metric: usize| judged.arms.get(arm)?.value(metric);
    let effects = judged.effects.iter().map(|effect| ResourceEffect {
        arm: effect.arm,
        resource: judged.metrics[effect.metric].clone(),
        values: [0, effect.arm].map(|arm| mean(arm, effect.metric)),
        scale: effect.scale,
        contrast: effect.contrast,
    });
    effects.collect()
}

/// Counts the runs of each arm, and computes its figures.
fn summarize(trial: &mut Trial) {
    for (at, arm) in trial.arms.iter_mut().enumerate() {
        let runs = trial.record.runs.iter();
        let runs = runs.filter(|run| run.arm == at && run.purpose == RunPurpose::Measured);
        (arm.runs, arm.failed) = (0, 0);
        for run in runs.clone() {
            arm.runs += 1;
            arm.failed += u64::from(!run.succeeded);
        }
        let figure = |metric: usize| {
            let values = runs.clone().filter(|run| run.succeeded);
            let values = values.filter_map(|run| run.values.get(metric).copied().flatten());
            let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            figures(&values).map(Figure::from)
        };
        arm.figures = (0..trial.metrics.len()).map(figure).collect();
    }
}

/// An effect that has no verdict yet.
pub(super) struct Draft {
    pub(super) effect: ArmEffect,
    pub(super) better: Better,
    /// Mean of the first arm.
    pub(super) mean: f64,
    /// Number of observations.
    pub(super) have: u64,
    /// The effect, expressed as an additive difference.
    pub(super) centre: f64,
    /// Standard deviation of the differences that `centre` is the mean of.
    pub(super) spread: f64,
}

impl Draft {
    /// Sets the verdict. `contrast.chance` must already be set. `difference` is the largest effect
    /// that counts as no difference, as a fraction of the first arm's value.
    pub(super) fn conclude(&mut self, difference: f64, comparisons: usize) {
        self.effect.contrast.verdict = self.verdict(difference, comparisons);
    }

    fn verdict(&self, difference: f64, comparisons: usize) -> Verdict {
        let effect = &self.effect;
        let mut checks = effect.checks.iter();
        let constant = checks.any(|check| matches!(check, Check::Constant { .. }));
        let limit = match effect.scale {
            Scale::Relative => difference,
            Scale::Absolute => difference * self.mean.abs(),
        };
        let evidence = Evidence {
            effect: effect.contrast.effect.filter(|_| !constant),
            chance: effect.contrast.chance,
            better: self.better,
            limit,
        };
        evidence.verdict(|| {
            let limit = sum_of(effect.scale, limit);
            let needed = blocks_for_a_verdict(self.centre, self.spread, limit, comparisons);
            needed.map(|needed| needed.saturating_sub(self.have).max(1))
        })
    }
}

fn compare(trial: &Trial, arm: usize, metric: usize, comparisons: usize) -> Draft {
    let blocks = Blocks::new(trial, metric, arm);
    let first = trial.arms.first().and_then(|arm| arm.value(metric));
    let side = |value: fn(&Pair) -> f64| -> Vec<f64> { blocks.pairs.iter().map(value).collect() };
    let (a, b) = (side(|pair| pair.first), side(|pair| pair.second));
    let scale = scale_of(&a, &b);
    let differences: Vec<f64> = a
        .iter()
        .zip(&b)
        .map(|(a, b)| additive_difference(scale, *a, *b))
        .collect();
    let centre = mean(&differences);
    // Intervals for all looks hold together (repeated confidence intervals, Jennison and Turnbull
    // 1989).
    let misses = FALSE_VERDICTS / trial.record.design.looks.max(1) as f64;
    let effect = mean_effect_at(scale, &differences, misses);
    let design = &trial.record.design;
    let ahead = detectable(&noise_runs(trial, metric), design.blocks, comparisons);
    let ahead = ahead.and_then(|known| in_scale(known, scale, first));
    let mut checks = checks::block_checks(&blocks, scale);
    let have = blocks.pairs.len() as u64;
    let need = fewest_blocks(comparisons);
    if have < need {
        checks.insert(0, Check::TooFew { have, need });
    }
    checks.extend(checks::failure_difference(&trial.arms, arm));
    let constant = checks
        .iter()
        .any(|check| matches!(check, Check::Constant { .. }));
    Draft {
        better: trial.metrics[metric].better,
        mean: first.unwrap_or_default(),
        have,
        centre,
        spread: variance(&differences).sqrt(),
        effect: ArmEffect {
            metric,
            arm,
            blocks: Some(have),
            scale,
            contrast: Contrast {
                effect,
                ..Contrast::default()
            },
            chance: (!constant && have > 1).then(|| signed_rank(&differences)),
            noise: ahead.map(|known| known.noise),
            detectable: ahead.and_then(|known| known.effect),
            checks,
            ..ArmEffect::default()
        },
    }
}

/// Returns the metric's values in the successful noise runs, in chronological order.
fn noise_runs(trial: &Trial, metric: usize) -> Vec<f64> {
    let runs = trial.record.runs.iter();
    let runs = runs.filter(|run| run.purpose == RunPurpose::Noise && run.succeeded);
    runs.filter_map(|run| run.values.get(metric).copied().flatten())
        .collect()
}

/// Converts an estimate of the noise to the scale on which the blocks' values are compared. Returns
/// `None` if `mean` is unknown.
fn in_scale(known: Detectable, scale: Scale, mean: Option<f64>) -> Option<Detectable> {
    let mean = mean?.abs();
    let factor = match (known.scale, scale) {
        (Scale::Relative, Scale::Absolute) => mean,
        (Scale::Absolute, Scale::Relative) => 1.0 / mean,
        _ => 1.0,
    };
    Some(Detectable {
        scale,
        noise: known.noise * factor,
        effect: known.effect.map(|effect| effect * factor),
    })
}

#[cfg(test)]
mod tests;
