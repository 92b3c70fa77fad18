//! Decides whether a trial can end before its last block.

use ticktax_model::Nanos;
use ticktax_model::comparison::{Comparison, RunPurpose, StoppedEarly, TrialRun, Verdict};
use ticktax_probes::clock::now;

use super::Runner;
use crate::judge;

impl Runner {
    /// Returns why the trial can end now, or `None` if it must go on. A trial ends only between two
    /// blocks.
    pub(super) fn stop_early(&self) -> Option<StoppedEarly> {
        let next = self.schedule.get(self.runs.len())?;
        let last = self.runs.last()?;
        let is_between = last.purpose == RunPurpose::Measured && last.block != next.block;
        if !is_between {
            return None;
        }
        let blocks = last.block + 1;
        let trial = self.trial();
        if trial.record.design.is_look(blocks) && is_certain(&judge(trial, &[], "")) {
            return Some(StoppedEarly::Certain);
        }
        let begin = first_of_blocks(&self.runs)?.began;
        let elapsed = now() - self.began;
        let is_over = self
            .plan
            .max_time
            .is_some_and(|max_time| elapsed + each_block(elapsed - begin, blocks) > max_time);
        is_over.then_some(StoppedEarly::MaxTime)
    }
}

fn first_of_blocks(runs: &[TrialRun]) -> Option<&TrialRun> {
    runs.iter().find(|run| run.purpose == RunPurpose::Measured)
}

/// Returns the mean time per block.
fn each_block(elapsed: Nanos, blocks: u64) -> Nanos {
    Nanos(elapsed.0 / i64::try_from(blocks).unwrap_or(i64::MAX).max(1))
}

/// Returns whether every metric of every arm has a verdict.
fn is_certain(comparison: &Comparison) -> bool {
    let mut effects = comparison.effects.iter();
    effects.all(|effect| !matches!(effect.contrast.verdict, Verdict::CannotTell { .. }))
}
