//! Chooses among several arms of a paced loop.
//!
//! A turn is one run of one arm. A round is one turn of each arm. Differences that chance can
//! explain do not count. The statistics treat a turn as a single observation: a machine's
//! disturbances last for seconds, so the frames in a turn are not independent. The turns in a round
//! follow each other, so a machine that is slow for a while affects all of them. Two arms are
//! therefore compared by their differences within each round (a paired t test).
//!
//! The best of k arms is partly just the luckiest. Each criterion looks at all k(k−1)/2 pairs. An
//! arm is ruled out only if it differs from the best one by more than chance could make *any* pair
//! differ (Holm 1979). If the arms do not differ, at most [`FALSE_VERDICTS`] of all comparisons end
//! in a choice.

mod paired;

use ticktax_model::Nanos;
use ticktax_model::pace::{Choice, Criterion, Distribution, PaceArm, PaceTurn};

use self::paired::{Turn, difference};
use crate::judge::{FALSE_VERDICTS, corrected};

/// The criteria in order of importance. Each gets an equal share of [`FALSE_VERDICTS`].
const CRITERIA: [Criterion; 3] = [Criterion::LateFrames, Criterion::Lateness, Criterion::Cpu];
/// Two CPU times count as equal if they are within 10 % of each other or within 0.1 % of a CPU.
const SAME_CPU: f64 = 1.1;
const SAME_SHARE: f64 = 1e-3;

/// Chooses the best of `arms` for every combination of rate and work.
///
/// The criteria are applied in order. Each keeps its best arm and all arms that are just as good:
/// 1. fewest slots without a frame in time;
/// 2. shortest waits, at the highest quantile known for every arm ([`common_quantile`]);
/// 3. least CPU time.
///
/// The remaining arms are equally good. An arm without frames is never chosen, so the choice is
/// empty for a group in which no arm has frames. Arms with fewer than two turns count as equal,
/// because they do not show how much their results vary by chance.
pub fn choices(arms: &[PaceArm]) -> Vec<Choice> {
    let q = common_quantile(arms);
    let mut groups: Vec<Choice> = Vec::new();
    for arm in arms {
        let same =
            |choice: &Choice| is_same(choice.rate, arm.spec.rate) && choice.work == arm.spec.work;
        if !groups.iter().any(same) {
            groups.push(Choice {
                rate: arm.spec.rate,
                work: arm.spec.work,
                best: Vec::new(),
                by: None,
            });
        }
    }
    for choice in &mut groups {
        let belongs = |&index: &usize| {
            let arm: &PaceArm = &arms[index];
            is_same(choice.rate, arm.spec.rate)
                && choice.work == arm.spec.work
                && arm.figures.is_some()
        };
        choice.best = (0..arms.len()).filter(belongs).collect();
        for criterion in CRITERIA {
            let before = choice.best.len();
            keep_best(&mut choice.best, arms, criterion, q);
            if choice.best.len() < before {
                choice.by = Some(criterion);
            }
        }
    }
    groups
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Returns the highest of the quantiles 0.99, 0.9 and 0.5 that every arm with frames has enough
/// waits to support. Returns `None` if any arm has fewer than five waits.
pub fn common_quantile(arms: &[PaceArm]) -> Option<f64> {
    let known = |q: f64| {
        arms.iter()
            .filter_map(wait)
            .all(|wait| wait.quantile(q).is_some())
    };
    [0.99, 0.9, 0.5].into_iter().find(|&q| known(q))
}

fn wait(arm: &PaceArm) -> Option<&Distribution> {
    arm.figures.as_ref()?.wait.as_ref()
}

fn keep_best(places: &mut Vec<usize>, arms: &[PaceArm], criterion: Criterion, q: Option<f64>) {
    // Count waits that exceed the smallest of the arms' quantiles. This limit is the same for all
    // arms, so it favours none.
    let limit = places.iter().map(|&place| lateness(&arms[place], q)).min();
    let turn = |turn: &PaceTurn| match criterion {
        Criterion::LateFrames => Turn::of_count(turn.late, turn.wanted),
        Criterion::Lateness => turn.wait.as_ref().map_or(Turn::NONE, |wait| {
            Turn::of_count(wait.beyond(limit.unwrap_or_default()), wait.count)
        }),
        Criterion::Cpu => Turn::of_share(turn.cpu_time.share_of(turn.elapsed)),
    };
    let turns: Vec<(usize, Vec<Turn>)> = places
        .iter()
        .map(|&place| (place, arms[place].by_turn.iter().map(turn).collect()))
        .collect();
    let cost = |turns: &[Turn]| turns.iter().map(|turn| turn.share).sum::<f64>();
    let best = turns
        .iter()
        .min_by(|a, b| cost(&a.1).total_cmp(&cost(&b.1)));
    let Some((best, best_turns)) = best.map(|(place, turns)| (*place, turns.clone())) else {
        return;
    };
    let chances: Vec<Option<f64>> = turns
        .iter()
        .map(|(place, turns)| {
            let counts = criterion != Criterion::Cpu || takes_more(&arms[*place], &arms[best]);
            difference(turns, &best_turns).filter(|_| counts)
        })
        .collect();
    let pairs = places.len() * places.len().saturating_sub(1) / 2;
    let mut corrected = corrected(&chances, pairs).into_iter();
    let limit = FALSE_VERDICTS / CRITERIA.len() as f64;
    places.retain(|_| {
        corrected
            .next()
            .flatten()
            .is_none_or(|chance| chance > limit)
    });
}

fn takes_more(arm: &PaceArm, than: &PaceArm) -> bool {
    let share = |arm: &PaceArm| arm.cpu_time.share_of(arm.elapsed);
    share(arm) > (share(than) * SAME_CPU).max(share(than) + SAME_SHARE)
}

fn lateness(arm: &PaceArm, q: Option<f64>) -> Nanos {
    let quantile = wait(arm).and_then(|wait| wait.quantile(q?));
    quantile.unwrap_or(Nanos::ZERO)
}

#[cfg(test)]
mod tests;
