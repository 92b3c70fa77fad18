//! What the runs of a trial tell.
//!
//! A block is one observation: the difference of its two arms, of positive values the logarithm of
//! their ratio, so that a machine that slows down counts for both. Whether there is an effect is the
//! signed-rank test of the blocks' differences ([`signed_rank`]); how large it is, their mean, with an interval
//! that is drawn from them ([`mean_interval`]). A difference is called one where the test, all comparisons
//! together (Holm), and the interval agree.

use ticktax_model::trial::{
    ArmSuccess, Better, Check, Comparison, Effect, FailIf, FailIfResult, RunPurpose, Scale, Trial,
    TrialStatement, Verdict,
};

use super::FALSE_VERDICTS;
use super::blocks::{Blocks, Pair, figures};
use super::checks;
use super::detectable::{
    Detectable, blocks_that_tell, detectable, effect_of, fewest_blocks, on, scale_of, sum_of,
};
use crate::statistics::{fisher_exact, holm, mean, mean_interval, signed_rank, variance};

/// Judges a trial, and answers what must not be.
///
/// What `restored` says is left to whoever changed the settings.
pub fn judge(trial: Trial, fail_if: &[FailIf]) -> TrialStatement {
    let successes = successes(&trial);
    let arms = 1..trial.arms.len().max(1);
    let count = arms.len() * trial.metrics.len();
    let mut drafts: Vec<Draft> = arms
        .flat_map(|arm| (0..trial.metrics.len()).map(move |metric| (arm, metric)))
        .map(|(arm, metric)| compare(&trial, &successes, arm, metric, count))
        .collect();
    let chances: Vec<Option<f64>> = drafts.iter().map(|it| it.comparison.chance).collect();
    for (draft, corrected) in drafts.iter_mut().zip(holm(&chances)) {
        draft.comparison.chance_corrected = corrected;
        draft.conclude(trial.design.difference, count);
    }
    let comparisons: Vec<Comparison> = drafts.into_iter().map(|it| it.comparison).collect();
    let fail_if = fail_if.iter().flat_map(|condition| {
        let of_metric = comparisons.iter();
        let of_metric = of_metric.filter(move |it| it.metric == condition.metric);
        of_metric.map(move |comparison| FailIfResult {
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

/// How many runs of each arm succeeded.
fn successes(trial: &Trial) -> Vec<ArmSuccess> {
    let of = |arm: usize| {
        let runs = trial.runs.iter();
        let runs = runs.filter(|run| run.arm == arm && run.purpose == RunPurpose::Measured);
        let (mut all, mut succeeded) = (0, 0);
        for run in runs {
            all += 1;
            succeeded += u64::from(run.succeeded);
        }
        (succeeded, all)
    };
    let first = of(0);
    let arms = 0..trial.arms.len();
    arms.map(|arm| {
        let (succeeded, runs) = of(arm);
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
    /// The effect, as it adds up.
    pub(super) centre: f64,
    /// The standard deviation of what the effect is the mean of, as it adds up.
    pub(super) spread: f64,
}

impl Draft {
    /// Says what follows, now that the corrected chance is known. `difference` is what counts as none, as a share
    /// of the first arm.
    pub(super) fn conclude(&mut self, difference: f64, comparisons: usize) {
        self.comparison.verdict = self.verdict(difference, comparisons);
    }

    fn verdict(&self, difference: f64, comparisons: usize) -> Verdict {
        let it = &self.comparison;
        let constant = it
            .checks
            .iter()
            .any(|it| matches!(it, Check::Constant { .. }));
        let (Some(effect), Some(first), false) = (it.effect, it.first, constant) else {
            return Verdict::CannotTell { more_blocks: None };
        };
        let certain = it.chance_corrected.is_some_and(|it| it <= FALSE_VERDICTS);
        if certain && !effect.may_be_none() {
            let falls = effect.value < 0.0;
            return match self.better {
                Better::Unknown => Verdict::Differs,
                better if falls == (better == Better::Lower) => Verdict::Better,
                Better::Lower | Better::Higher => Verdict::Worse,
            };
        }
        let limit = match it.scale {
            Scale::Relative => difference,
            Scale::Absolute => difference * first.mean.abs(),
        };
        if effect.bound() <= limit {
            return Verdict::NoDifferenceBeyond {
                bound: effect.bound(),
            };
        }
        let limit = sum_of(it.scale, limit);
        let needed = blocks_that_tell(self.centre, self.spread, limit, comparisons);
        let have = it.blocks.unwrap_or_else(|| {
            let values = it.second.map_or(0, |it| it.count);
            values.min(first.count)
        });
        Verdict::CannotTell {
            more_blocks: needed.map(|needed| needed.saturating_sub(have).max(1)),
        }
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
    let side = |of: fn(&Pair) -> f64| -> Vec<f64> { blocks.pairs.iter().map(of).collect() };
    let (a, b) = (side(|it| it.first), side(|it| it.second));
    let scale = scale_of(&a, &b);
    let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| on(scale, *a, *b)).collect();
    let centre = mean(&differences);
    let effect = mean_interval(&differences).map(|(low, high)| Effect {
        value: effect_of(scale, centre),
        low: effect_of(scale, low),
        high: effect_of(scale, high),
    });
    let ahead = detectable(&noise_runs(trial, metric), trial.design.blocks, comparisons);
    let ahead = ahead.and_then(|it| in_scale(it, scale, first.map(|it| it.mean)));
    let mut checks = checks::of_blocks(&blocks, scale);
    let have = blocks.pairs.len() as u64;
    let need = fewest_blocks(comparisons);
    if have < need {
        checks.insert(0, Check::TooFew { have, need });
    }
    checks.extend(checks::of_successes(successes, arm));
    let constant = checks.iter().any(|it| matches!(it, Check::Constant { .. }));
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
            effect,
            chance: (!constant && have > 1).then(|| signed_rank(&differences)),
            chance_corrected: None,
            noise: ahead.map(|it| it.noise),
            detectable: ahead.and_then(|it| it.effect),
            predicted: None,
            verdict: Verdict::CannotTell { more_blocks: None },
            checks,
        },
    }
}

/// The values by which the machine's own noise is known, in the order of time.
fn noise_runs(trial: &Trial, metric: usize) -> Vec<f64> {
    let runs = trial.runs.iter();
    let runs = runs.filter(|run| run.purpose == RunPurpose::Noise && run.succeeded);
    runs.filter_map(|run| run.values.get(metric).copied().flatten())
        .collect()
}

/// What was known ahead, in the scale that the blocks turned out to have.
fn in_scale(it: Detectable, scale: Scale, mean: Option<f64>) -> Option<Detectable> {
    let mean = mean?.abs();
    let factor = match (it.scale, scale) {
        (Scale::Relative, Scale::Absolute) => mean,
        (Scale::Absolute, Scale::Relative) => 1.0 / mean,
        _ => 1.0,
    };
    Some(Detectable {
        scale,
        noise: it.noise * factor,
        effect: it.effect.map(|it| it * factor),
    })
}

#[cfg(test)]
mod tests;
