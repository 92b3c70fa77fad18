//! Decides whether a trial can end before its last block.

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Comparison, Experiment, Outcome, RunPurpose, StoppedEarly, TrialRun, Verdict,
};
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
        if trial.record.design.is_look(blocks) && is_certain(&judge(trial, &self.plan.fail_if, ""))
        {
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

/// Returns whether every metric of every arm has a verdict, and every condition is decided.
fn is_certain(comparison: &Comparison) -> bool {
    let mut effects = comparison.effects.iter();
    let are_known =
        effects.all(|effect| !matches!(effect.contrast.verdict, Verdict::CannotTell { .. }));
    let Experiment::Trial(record) = &comparison.experiment else {
        return are_known;
    };
    let mut conditions = record.fail_if.iter();
    are_known && conditions.all(|condition| condition.outcome != Outcome::CannotTell)
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::timed_trial;
    use ticktax_model::comparison::FailIf;

    use super::is_certain;
    use crate::judge;

    /// B takes about 3 % longer, which is certain. Whether it is more than 3 % is not.
    #[test]
    fn an_undecided_condition_is_not_certain() {
        let slots: Vec<(u64, u64, usize)> = (0..12)
            .flat_map(|block| {
                [0, 1, 1, 0]
                    .into_iter()
                    .zip(0..)
                    .map(move |(arm, at)| (block, at, arm))
            })
            .collect();
        let times: Vec<f64> = (0..slots.len())
            .map(|at| 1e9 + 1e6 * (at * 7 % 11) as f64)
            .collect();
        let certain = |condition: &str| {
            let trial = timed_trial(&slots, &times, 0.03);
            is_certain(&judge(trial, &[FailIf::parse(condition).unwrap()], ""))
        };
        assert!(certain("time > +1%"));
        assert!(certain("time > +9%"));
        assert!(!certain("time > +3%"));
    }
}
