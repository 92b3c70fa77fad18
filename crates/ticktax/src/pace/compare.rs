//! Variants of a loop, side by side.

use ticktax_experiment::turns::Turns;
use ticktax_model::Nanos;
use ticktax_model::pace::PaceComparison;
use ticktax_observe::LoopPlan;

use super::own;
use crate::arguments::{LoopVariants, PaceArguments};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// One turn of one variant, without other wishes.
const TURN: Nanos = Nanos::from_secs(2);

/// Runs every combination of the lists in turns.
pub(super) fn compare(
    lists: &LoopVariants,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<PaceComparison, Failure> {
    let turn = typed.length.map_or(TURN, |length| length.0);
    let turns = Turns::new(combinations(lists, typed, turn), typed.rounds)?;
    let interrupt = Interrupt::listen()?;
    let bar = terminal.progress(Some(turns.length()), String::new(), false);
    let mut told = 0;
    let comparison = turns.run(&mut |progress| {
        if told != progress.turn {
            told = progress.turn;
            bar.tell(format!("{told}/{} {}", progress.turns, progress.name));
        }
        bar.at(progress.elapsed);
        interrupt.signal().is_none()
    })?;
    bar.done();
    Ok(comparison)
}

/// Every combination of what was named; what was not is as for a single loop.
fn combinations(lists: &LoopVariants, typed: &PaceArguments, turn: Nanos) -> Vec<LoopPlan> {
    fn or<T: Copy>(list: &[T], otherwise: T) -> Vec<T> {
        if list.is_empty() {
            vec![otherwise]
        } else {
            list.to_vec()
        }
    }
    let mut all = Vec::new();
    for rate in or(&lists.rates, typed.rate) {
        for work in or(&lists.works, typed.work) {
            for sleep in or(&lists.sleeps, typed.sleep) {
                for rule in or(&lists.rules, typed.rule) {
                    all.push(LoopPlan {
                        rate: rate.0,
                        period: rate.period(),
                        work: work.0,
                        sleep,
                        rule,
                        ..own::plan(typed, turn)
                    });
                }
            }
        }
    }
    all
}
