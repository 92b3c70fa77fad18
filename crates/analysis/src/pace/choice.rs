//! Which of several ways to pace a loop to choose.
//!
//! What differs by no more than chance makes it is the same. A turn is the unit of chance: what
//! disturbs a machine goes on for seconds, so the frames of one turn do not speak independently, but
//! the turns of one round come one after the other, and whatever slows down the machine slows down
//! all of them. So two ways are compared by the differences within each round (a paired t test).
//!
//! Of k ways the best is best by luck in part. Each criterion looks at all k(k−1)/2 pairs, and a way
//! is ruled out only where it differs from the best beyond what chance makes of *any* pair
//! (Holm 1979): where nothing differs, a choice is made in at most [`FALSE_CHOICE`] of all
//! comparisons.

mod paired;

use ticktax_model::Nanos;
use ticktax_model::pace::{Choice, Criterion, Distribution, PaceTurn, PaceVariant};

use self::paired::{Turn, difference};

/// The probability, at most, of a choice among ways that do not differ.
const FALSE_CHOICE: f64 = 0.05;
/// The criteria, in their order; each has its part of [`FALSE_CHOICE`].
const CRITERIA: [Criterion; 3] = [Criterion::LateFrames, Criterion::Lateness, Criterion::Cpu];
/// CPU times that differ by less than a tenth, or by a thousandth of a CPU, are alike.
const SAME_CPU: f64 = 1.1;
const SAME_SHARE: f64 = 1e-3;

/// The choice for each rate and work among `rows`.
///
/// The criteria are asked one after the other, and each keeps those that are not worse than its
/// best: fewest slots without a frame in time, the shortest waits (the highest quantile that every
/// row can tell, [`common_quantile`]), the least CPU time. What the last leaves are as good as each
/// other. A row without a frame is no choice; a group without any has none. Rows of fewer than two
/// turns have nothing that chance could be told by, and are all alike.
pub fn choices(rows: &[PaceVariant]) -> Vec<Choice> {
    let q = common_quantile(rows);
    let mut groups: Vec<Choice> = Vec::new();
    for row in rows {
        let same =
            |choice: &Choice| is_same(choice.rate, row.spec.rate) && choice.work == row.spec.work;
        if !groups.iter().any(same) {
            groups.push(Choice {
                rate: row.spec.rate,
                work: row.spec.work,
                best: Vec::new(),
                by: None,
            });
        }
    }
    for choice in &mut groups {
        let mine = |&place: &usize| {
            let row: &PaceVariant = &rows[place];
            is_same(choice.rate, row.spec.rate)
                && choice.work == row.spec.work
                && row.figures.is_some()
        };
        choice.best = (0..rows.len()).filter(mine).collect();
        for criterion in CRITERIA {
            let before = choice.best.len();
            keep_best(&mut choice.best, rows, criterion, q);
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

/// The highest of the quantiles 0.99, 0.9 and 0.5 of the waits that every row with a frame has
/// enough of them to tell; `None` where one has fewer than five.
pub fn common_quantile(rows: &[PaceVariant]) -> Option<f64> {
    let told = |q: f64| {
        rows.iter()
            .filter_map(wait)
            .all(|wait| wait.quantile(q).is_some())
    };
    [0.99, 0.9, 0.5].into_iter().find(|&q| told(q))
}

fn wait(row: &PaceVariant) -> Option<&Distribution> {
    row.figures.as_ref()?.wait.as_ref()
}

/// Leaves those that are as good as the best.
fn keep_best(places: &mut Vec<usize>, rows: &[PaceVariant], criterion: Criterion, q: Option<f64>) {
    // The same for all, so that none is favoured: waits beyond the shortest of their quantiles.
    let than = places.iter().map(|&place| lateness(&rows[place], q)).min();
    let turn = |turn: &PaceTurn| match criterion {
        Criterion::LateFrames => Turn::of_count(turn.late, turn.wanted),
        Criterion::Lateness => turn.wait.as_ref().map_or(Turn::NONE, |wait| {
            Turn::of_count(wait.beyond(than.unwrap_or_default()), wait.count)
        }),
        Criterion::Cpu => Turn::of_share(turn.cpu_time.share_of(turn.elapsed)),
    };
    let turns: Vec<(usize, Vec<Turn>)> = places
        .iter()
        .map(|&place| (place, rows[place].by_turn.iter().map(turn).collect()))
        .collect();
    let cost = |turns: &[Turn]| turns.iter().map(|turn| turn.share).sum::<f64>();
    let best = turns
        .iter()
        .min_by(|a, b| cost(&a.1).total_cmp(&cost(&b.1)));
    let Some((best, of_best)) = best.map(|(place, turns)| (*place, turns.clone())) else {
        return;
    };
    let mut worse: Vec<(f64, usize)> = turns
        .iter()
        .filter(|(place, _)| criterion != Criterion::Cpu || takes_more(&rows[*place], &rows[best]))
        .filter_map(|(place, turns)| Some((difference(turns, &of_best)?, *place)))
        .collect();
    worse.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pairs = places.len() * places.len().saturating_sub(1) / 2;
    let level = FALSE_CHOICE / CRITERIA.len() as f64;
    let ruled_out = worse
        .iter()
        .enumerate()
        .take_while(|(before, (chance, _))| *chance * (pairs - before) as f64 <= level)
        .count();
    places.retain(|place| worse[..ruled_out].iter().all(|(_, other)| other != place));
}

/// Whether a row takes so much more CPU time than another that it matters.
fn takes_more(row: &PaceVariant, than: &PaceVariant) -> bool {
    let share = |row: &PaceVariant| row.cpu_time.share_of(row.elapsed);
    share(row) > (share(than) * SAME_CPU).max(share(than) + SAME_SHARE)
}

fn lateness(row: &PaceVariant, q: Option<f64>) -> Nanos {
    let quantile = wait(row).and_then(|wait| wait.quantile(q?));
    quantile.unwrap_or(Nanos::ZERO)
}

#[cfg(test)]
mod tests;
