//! Decides which differences are too large to be chance.

use std::collections::BTreeMap;

use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};
use ticktax_model::changes::Change;
use ticktax_model::statement::{Class, Statement};

use super::BeatChange;
use crate::statistics::{student_quantile, variance, welch};

/// Minimum number of blocks per side. With fewer, the estimated spread would be a guess.
const FEWEST: usize = 5;

/// Judges a family of differences together.
pub(super) struct Judge {
    /// Two-sided significance level for each single difference.
    each: f64,
}

impl Judge {
    /// Creates a judge for `members` differences. `family` is the accepted probability of at least
    /// one false positive among them.
    pub(super) fn new(family: f64, members: usize) -> Self {
        Self {
            each: family / members.max(1) as f64,
        }
    }

    /// Compares a figure between the two sides. Judges the difference from the figure's values in
    /// each side's blocks.
    pub(super) fn change(
        &self,
        first: Option<f64>,
        second: Option<f64>,
        a: Option<Vec<f64>>,
        b: Option<Vec<f64>>,
    ) -> Change {
        let change = Change {
            first,
            second,
            ..Change::default()
        };
        let (Some(difference), Some(a), Some(b)) = (change.difference(), a, b) else {
            return change;
        };
        let Some((error, freedom)) = spread(&a, &b) else {
            return change;
        };
        // Two constant lists have no spread, so any difference between them is certain.
        let quantile = |alpha: f64| student_quantile(1.0 - alpha / 2.0, freedom);
        let margin = error * quantile(0.05);
        Change {
            difference_low: Some(difference - margin),
            difference_high: Some(difference + margin),
            certain: Some(difference.abs() > error * quantile(self.each)),
            ..change
        }
    }
}

/// Judges a difference between two figures that each have their own 95 % margin.
pub(super) fn with_margins(change: Change, first: f64, second: f64) -> Change {
    let Some(difference) = change.difference() else {
        return change;
    };
    let margin = first.hypot(second);
    Change {
        difference_low: Some(difference - margin),
        difference_high: Some(difference + margin),
        certain: Some(difference.abs() > margin),
        ..change
    }
}

/// Standard error of the difference between the means of `a` and `b`, with its degrees of freedom.
/// `None` if either has too few values.
fn spread(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let moments = |values: &[f64]| (variance(values), values.len());
    (a.len().min(b.len()) >= FEWEST).then(|| welch(moments(a), moments(b)))
}

pub(super) type Programs = BTreeMap<i32, String>;

pub(super) fn programs(statement: &Statement) -> Programs {
    let programs = statement
        .accounts
        .iter()
        .filter(|account| account.class == Class::Program);
    programs
        .filter_map(|account| Some((account.pid?, account.name.clone())))
        .collect()
}

/// Lists periodic sources that appeared, disappeared or changed their period, most expensive first.
/// Also counts the unchanged ones.
///
/// Excludes off-CPU sources: they use no CPU time, and the thread's on-CPU source shows the same
/// period.
pub(super) fn beats(
    a: Option<(&BeatStatement, &Programs)>,
    b: Option<(&BeatStatement, &Programs)>,
) -> (Vec<BeatChange>, u64) {
    let (Some(a), Some(b)) = (a, b) else {
        return (Vec::new(), 0);
    };
    let comparable = |(statement, programs): (&BeatStatement, &Programs)| {
        let is_comparable = |beat: &&BeatLine| !beat.by_ticktax && beat.kind != BeatKind::OffCpu;
        // Ignore the samples kept for plots. They are already in each side's own statement.
        let others = statement
            .beats
            .iter()
            .filter(is_comparable)
            .map(|beat| BeatLine {
                sample: None,
                ..beat.clone()
            });
        others
            .map(|beat| (program(&beat, programs), beat))
            .collect::<Vec<_>>()
    };
    let (firsts, mut seconds) = (comparable(a), comparable(b));
    let mut kept = 0;
    let mut unmatched = Vec::new();
    for first in firsts {
        let same =
            |second: &OfProgram| same_source(&first, second) && same_period(&first.1, &second.1);
        match seconds.iter().position(same) {
            Some(place) => {
                seconds.remove(place);
                kept += 1;
            }
            None => unmatched.push(first),
        }
    }
    let mut changes = Vec::new();
    for first in unmatched {
        // If a source exists on both sides with different periods, its period changed. In a
        // different process, it counts as a different source.
        let moved = |second: &OfProgram| same_source(&first, second) && first.1.pid == second.1.pid;
        let place = seconds.iter().position(moved);
        changes.push(BeatChange {
            second: place.map(|place| seconds.remove(place).1),
            first: Some(first.1),
        });
    }
    changes.extend(seconds.into_iter().map(|(_, second)| BeatChange {
        first: None,
        second: Some(second),
    }));
    let share = |beat: &Option<BeatLine>| beat.as_ref().map_or(0.0, |beat| beat.share);
    let cost = |change: &BeatChange| share(&change.first).max(share(&change.second));
    changes.sort_by(|x, y| cost(y).total_cmp(&cost(x)));
    (changes, kept)
}

/// A periodic source, with the name of the program whose process it belongs to, if known.
type OfProgram = (Option<String>, BeatLine);

fn program(beat: &BeatLine, programs: &Programs) -> Option<String> {
    programs.get(&beat.pid?).cloned()
}

/// Whether both sources are the same program's thread, or the same kernel work.
fn same_source((program, a): &OfProgram, (other, b): &OfProgram) -> bool {
    a.name == b.name && a.kind == b.kind && program == other
}

/// Whether the periods' confidence intervals overlap, or the periods differ by less than 0.1 %. Two
/// machines' clocks may differ by that much.
fn same_period(a: &BeatLine, b: &BeatLine) -> bool {
    let overlap = a.rhythm.low <= b.rhythm.high && b.rhythm.low <= a.rhythm.high;
    overlap || (a.rhythm.period - b.rhythm.period).abs() < 1e-3 * a.rhythm.period
}
