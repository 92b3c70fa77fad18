//! `ticktax pace --vary`: runs several arms of a paced loop and compares them.

use crate::files::RowFiles;
use ticktax_analysis::pace::TurnStats;
use ticktax_experiment::vary::Loops;
use ticktax_model::{Nanos, SourceTable};
use ticktax_observe::{Observation, PacedTurns, Progress, TurnsPlan};
use ticktax_report::RowsEnded;

use super::own;
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::Extent;
use crate::terminal::Terminal;
use crate::watch::watch;

/// Default length of an arm's trial.
const TURN: Nanos = Nanos::from_secs(2);

/// Runs a loop with every combination of the varied values, interleaves the trials of all arms, and
/// compares the results.
pub(super) fn run(
    arms: &Loops,
    typed: &PaceArguments,
    mut files: RowFiles,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let plan = own::plan(typed, typed.length.map_or(TURN, |length| length.0))?;
    let arms = arms
        .arms()
        .map_err(|error| Failure::Arguments(error.to_string()))?;
    let arms = arms.iter().map(|arm| arm.changed(&plan.spec)).collect();
    let plan = TurnsPlan::new(plan, arms, typed.rounds)?;
    let interrupt = Interrupt::listen()?;
    let bar = terminal.progress(Extent::Time(plan.length()), "");
    let mut paced = PacedTurns::start(plan.clone())?;
    let mut stats = TurnStats::new(plan.arms(), typed.overshot_from());
    let mut shown = None;
    let mut show = |_: &mut TurnStats, _: &SourceTable, Progress { elapsed, .. }: Progress| {
        let turn = plan.turn_at(elapsed);
        if shown.replace(turn) != Some(turn) {
            let (turns, name) = (plan.turns(), plan.arm_of(turn));
            bar.tell(&format!("{}/{turns} {name}", turn + 1));
        }
        bar.at(elapsed);
    };
    let header = watch(&mut paced, &mut stats, &mut files, &interrupt, &mut show)?;
    bar.done();
    let turns = header
        .paced_turns()
        .expect("the header of interleaved loops lists their trials");
    let ended = RowsEnded {
        header: &header,
        sources: paced.sources(),
        document: &stats.finish(&header, turns).into(),
    };
    output::finish(&ended, files, typed.output(), terminal)
}
