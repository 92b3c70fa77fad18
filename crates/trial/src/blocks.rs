//! Groups a metric's values by arm and block.

use std::collections::BTreeMap;

use ticktax_model::comparison::{ArmFigures, RunPurpose, Trial, TrialRun};

use ticktax_experiment::statistics::{mean, median, variance};

/// A metric's values in the first arm and in one other arm.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Values of the first arm, in chronological order.
    pub(super) first: Vec<f64>,
    /// Values of the other arm, in chronological order.
    pub(super) second: Vec<f64>,
    /// Blocks in which both arms have values, in chronological order.
    pub(super) pairs: Vec<Pair>,
    /// Number of successful runs without a value.
    pub(super) missing: u64,
}

/// A block in which both arms have values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Mean of the first arm's values.
    pub(super) first: f64,
    /// Mean of the other arm's values.
    pub(super) second: f64,
    /// Whether the other arm ran first in this block.
    pub(super) second_led: bool,
}

impl Blocks {
    /// Collects the values of metric number `metric` in the first arm and in arm number `arm`.
    pub(super) fn new(trial: &Trial, metric: usize, arm: usize) -> Self {
        let mut blocks = Self::default();
        let mut by_block: BTreeMap<u64, Vec<&TrialRun>> = BTreeMap::new();
        let runs = trial.record.runs.iter();
        for run in runs.filter(|run| run.purpose == RunPurpose::Measured) {
            if run.arm == 0 || run.arm == arm {
                by_block.entry(run.block).or_default().push(run);
            }
        }
        for mut runs in by_block.into_values() {
            runs.sort_by_key(|run| run.position);
            let led = runs.first().is_some_and(|run| run.arm == arm);
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for run in runs.into_iter().filter(|run| run.succeeded) {
                let value = run.values.get(metric).copied().flatten();
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    blocks.missing += 1;
                    continue;
                };
                let values = if run.arm == 0 {
                    &mut first
                } else {
                    &mut second
                };
                values.push(value);
            }
            if !first.is_empty() && !second.is_empty() {
                blocks.pairs.push(Pair {
                    first: mean(&first),
                    second: mean(&second),
                    second_led: led,
                });
            }
            blocks.first.append(&mut first);
            blocks.second.append(&mut second);
        }
        blocks
    }
}

/// Summarizes an arm's values. Returns `None` if the list is empty.
pub(super) fn figures(values: &[f64]) -> Option<ArmFigures> {
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    let max = values.iter().copied().max_by(f64::total_cmp)?;
    Some(ArmFigures {
        count: values.len() as u64,
        mean: mean(values),
        median: median(values),
        deviation: variance(values).sqrt(),
        min,
        max,
    })
}
