//! Judges the runs of a trial.
//!
//! For each comparison of two arms, each block yields one observation, the difference between these
//! arms. If all values are positive, the observation is the logarithm of their ratio, so that a
//! slowdown of the machine affects both arms equally. A signed-rank test of the observations
//! decides whether there is an effect ([`signed_rank`]). The size of the effect is the mean of the
//! observations, with a bootstrap interval ([`mean_interval`]). A difference counts only if two
//! criteria agree: the test, corrected for all comparisons (Holm), and the interval.

use ticktax_analysis::judge::{Evidence, corrected};
use ticktax_model::trial::{
    ArmFigures, ArmSuccess, Better, Check, Comparison, Contrast, FailIf, FailIfResult, RunPurpose,
    Scale, Trial, TrialStatement, Verdict,
};

use super::blocks::{Blocks, Pair, figures};
use super::checks;
use ticktax_experiment::detectable::{
    Detectable, additive_difference, blocks_for_a_verdict, detectable, fewest_blocks, mean_effect,
    scale_of, sum_of,
};
use ticktax_experiment::statistics::{fisher_exact, mean, signed_rank, variance};

/// Judges a trial and evaluates the conditions in `fail_if`.
///
/// Leaves `restored` empty. The caller must fill it in, because the caller changed the settings.
pub fn judge(trial: Trial, fail_if: &[FailIf]) -> TrialStatement {
    let successes = successes(&trial);
    let arms = 1..trial.arms.len().max(1);
    let count = arms.len() * trial.metrics.len();
    let mut drafts: Vec<Draft> = arms
        .flat_map(|arm| (0..trial.metrics.len()).map(move |metric| (arm, metric)))
        .map(|(arm, metric)| compare(&trial, &successes, arm, metric, count))
        .collect();
    let chances: Vec<Option<f64>> = drafts.iter().map(|draft| draft.comparison.chance).collect();
    for (draft, corrected) in drafts.iter_mut().zip(corrected(&chances, count)) {
        draft.comparison.contrast.chance = corrected;
        draft.conclude(trial.design.difference, count);
    }
    let comparisons: Vec<Comparison> = drafts.into_iter().map(|draft| draft.comparison).collect();
    let fail_if = fail_if.iter().flat_map(|condition| {
        let matching = comparisons.iter();
        let matching = matching.filter(move |comparison| comparison.metric == condition.metric);
        matching.map(move |comparison| FailIfResult {
            condition: condition.clone(),
            arm: comparison.arm,
            outcome: condition.outcome(comparison),
        })
    });
    TrialStatement {
        successes,
        fail_if: fail_if.collect(),
        comparisons,
        restored: Vec::new(),
        trial,
    }
}

fn successes(trial: &Trial) -> Vec<ArmSuccess> {
    let count = |arm: usize| {
        let runs = trial.runs.iter();
        let runs = runs.filter(|run| run.arm == arm && run.purpose == RunPurpose::Measured);
        let (mut all, mut succeeded) = (0, 0);
        for run in runs {
            all += 1;
            succeeded += u64::from(run.succeeded);
        }
        (succeeded, all)
    };
    let first = count(0);
    let arms = 0..trial.arms.len();
    arms.map(|arm| {
        let (succeeded, runs) = count(arm);
        let none_failed = succeeded == runs && first.0 == first.1;
        ArmSuccess {
            arm,
            runs,
            succeeded,
            chance: (arm > 0 && !none_failed).then(|| fisher_exact(first, (succeeded, runs))),
        }
    })
    .collect()
}

/// A comparison that has no verdict yet.
pub(super) struct Draft {
    pub(super) comparison: Comparison,
    pub(super) better: Better,
    /// The effect, expressed as an additive difference.
    pub(super) centre: f64,
    /// Standard deviation of the differences whose mean is `centre`.
    pub(super) spread: f64,
}

impl Draft {
    /// Sets the verdict. `contrast.chance` must already be set. `difference` is the largest effect
    /// that counts as no difference, as a fraction of the first arm's value.
    pub(super) fn conclude(&mut self, difference: f64, comparisons: usize) {
        self.comparison.contrast.verdict = self.verdict(difference, comparisons);
    }

    fn verdict(&self, difference: f64, comparisons: usize) -> Verdict {
        let comparison = &self.comparison;
        let constant = comparison
            .checks
            .iter()
            .any(|check| matches!(check, Check::Constant { .. }));
        let mean = comparison.first.map_or(0.0, |figures| figures.mean);
        let limit = match comparison.scale {
            Scale::Relative => difference,
            Scale::Absolute => difference * mean.abs(),
        };
        let evidence = Evidence {
            effect: comparison.contrast.effect.filter(|_| !constant),
            chance: comparison.contrast.chance,
            better: self.better,
            limit,
        };
        evidence.verdict(|| {
            let limit = sum_of(comparison.scale, limit);
            let needed = blocks_for_a_verdict(self.centre, self.spread, limit, comparisons);
            let count = |figures: Option<ArmFigures>| figures.map_or(0, |figures| figures.count);
            let values = count(comparison.first).min(count(comparison.second));
            let have = comparison.blocks.unwrap_or(values);
            needed.map(|needed| needed.saturating_sub(have).max(1))
        })
    }
}

fn compare(
    trial: &Trial,
    successes: &[ArmSuccess],
    arm: usize,
    metric: usize,
    comparisons: usize,
) -> Draft {
    let blocks = Blocks::new(trial, metric, arm);
    let about = &trial.metrics[metric];
    let (first, second) = (figures(&blocks.first), figures(&blocks.second));
    let side = |value: fn(&Pair) -> f64| -> Vec<f64> { blocks.pairs.iter().map(value).collect() };
    let (a, b) = (side(|pair| pair.first), side(|pair| pair.second));
    let scale = scale_of(&a, &b);
    let differences: Vec<f64> = a
        .iter()
        .zip(&b)
        .map(|(a, b)| additive_difference(scale, *a, *b))
        .collect();
    let centre = mean(&differences);
    let effect = mean_effect(scale, &differences);
    let ahead = detectable(&noise_runs(trial, metric), trial.design.blocks, comparisons);
    let ahead = ahead.and_then(|known| in_scale(known, scale, first.map(|figures| figures.mean)));
    let mut checks = checks::block_checks(&blocks, scale);
    let have = blocks.pairs.len() as u64;
    let need = fewest_blocks(comparisons);
    if have < need {
        checks.insert(0, Check::TooFew { have, need });
    }
    checks.extend(checks::failure_difference(successes, arm));
    let constant = checks
        .iter()
        .any(|check| matches!(check, Check::Constant { .. }));
    Draft {
        better: about.better,
        centre,
        spread: variance(&differences).sqrt(),
        comparison: Comparison {
            metric: about.id.clone(),
            arm,
            first,
            second,
            blocks: Some(have),
            scale,
            contrast: Contrast {
                effect,
                ..Contrast::default()
            },
            chance: (!constant && have > 1).then(|| signed_rank(&differences)),
            noise: ahead.map(|known| known.noise),
            detectable: ahead.and_then(|known| known.effect),
            predicted: None,
            checks,
        },
    }
}

/// Returns the metric's values in the noise runs that succeeded, in chronological order.
fn noise_runs(trial: &Trial, metric: usize) -> Vec<f64> {
    let runs = trial.runs.iter();
    let runs = runs.filter(|run| run.purpose == RunPurpose::Noise && run.succeeded);
    runs.filter_map(|run| run.values.get(metric).copied().flatten())
        .collect()
}

/// Converts an estimate of the noise to the scale on which the values of the blocks are compared.
/// Returns `None` if `mean` is unknown.
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
