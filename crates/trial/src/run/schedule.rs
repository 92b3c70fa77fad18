//! The order of a trial's runs.

use ticktax_experiment::plan;
use ticktax_model::comparison::RunPurpose;

use super::TrialPlan;

/// A run that has not been made yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScheduledRun {
    pub(super) purpose: RunPurpose,
    pub(super) block: u64,
    pub(super) position: u64,
    pub(super) arm: usize,
}

/// Returns all of the trial's runs, in the order in which they are made.
pub(super) fn schedule(wanted: &TrialPlan, arms: usize) -> Vec<ScheduledRun> {
    let run = |purpose, block, position, arm| ScheduledRun {
        purpose,
        block,
        position,
        arm,
    };
    let warm_ups = (0..wanted.warm_ups).flat_map(|_| 0..arms);
    let warm_ups = (0..).zip(warm_ups);
    let mut runs: Vec<ScheduledRun> = warm_ups
        .map(|(position, arm)| run(RunPurpose::WarmUp, 0, position, arm))
        .collect();
    let noise = (0..wanted.noise_runs).map(|position| run(RunPurpose::Noise, 0, position, 0));
    runs.extend(noise);
    let slots = plan(arms, wanted.blocks, wanted.seed).into_iter();
    runs.extend(slots.map(|slot| run(RunPurpose::Measured, slot.block, slot.position, slot.arm)));
    runs
}

/// Returns whether to check after `run` that the arms are comparable. That run is the last warm-up
/// or, if no warm-ups are planned, the last run of the first block. By then, every arm has run.
pub(super) fn is_last_look(run: ScheduledRun, next: Option<&ScheduledRun>, warm_ups: u64) -> bool {
    let in_first = |other: &ScheduledRun| match run.purpose {
        RunPurpose::WarmUp => other.purpose == RunPurpose::WarmUp,
        RunPurpose::Noise => true,
        RunPurpose::Measured => other.block == 0,
    };
    let is_early = run.purpose == RunPurpose::WarmUp || warm_ups == 0 && run.block == 0;
    is_early && !next.is_some_and(in_first)
}
