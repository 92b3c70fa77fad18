//! Which differences are more than chance.

use std::collections::BTreeMap;

use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};
use ticktax_model::changes::Change;
use ticktax_model::statement::{Class, Statement};

use super::BeatChange;
use crate::statistics::{student_quantile, variance, welch};

/// With fewer blocks than this a spread is a guess.
const FEWEST: usize = 5;

/// Judges the differences of a family.
pub(super) struct Judge {
    /// The two-sided probability at which one of them counts.
    each: f64,
}

impl Judge {
    /// For so many differences, of which none may be wrong with a probability above `family`.
    pub(super) fn new(family: f64, members: usize) -> Self {
        Self {
            each: family / members.max(1) as f64,
        }
    }

    /// What became of a number, by its values in the blocks of both.
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
        // Two rows of equal values leave no doubt either way.
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

/// A difference of two numbers that have 95 % margins of their own.
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

/// The standard error of the difference of two means, and its degrees of freedom; `None` of too few
/// values.
fn spread(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let of = |values: &[f64]| (variance(values), values.len());
    (a.len().min(b.len()) >= FEWEST).then(|| welch(of(a), of(b)))
}

/// The names of programs by their process.
pub(super) type Programs = BTreeMap<i32, String>;

/// The programs of a statement.
pub(super) fn programs(statement: &Statement) -> Programs {
    let programs = statement
        .accounts
        .iter()
        .filter(|it| it.class == Class::Program);
    programs
        .filter_map(|it| Some((it.pid?, it.name.clone())))
        .collect()
}

/// The beats that came, went or have another period, the costliest first, and how many are the same. Those of being
/// off a CPU are left out: they take nothing, and the thread's own beat says the same.
pub(super) fn beats(
    a: Option<(&BeatStatement, &Programs)>,
    b: Option<(&BeatStatement, &Programs)>,
) -> (Vec<BeatChange>, u64) {
    let (Some(a), Some(b)) = (a, b) else {
        return (Vec::new(), 0);
    };
    let of = |(it, programs): (&BeatStatement, &Programs)| {
        let told = |it: &&BeatLine| !it.own && it.kind != BeatKind::OffCpu;
        // What is to be drawn of a beat is in its own statement.
        let others = it.beats.iter().filter(told).map(|beat| BeatLine {
            sample: None,
            ..beat.clone()
        });
        others
            .map(|beat| (program(&beat, programs), beat))
            .collect::<Vec<_>>()
    };
    let (firsts, mut seconds) = (of(a), of(b));
    let mut kept = 0;
    let mut unmatched = Vec::new();
    for first in firsts {
        let same = |it: &OfProgram| same_source(&first, it) && same_period(&first.1, &it.1);
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
        // What has one beat in each, with different periods, changed its period. Another process is another one.
        let moved = |it: &OfProgram| same_source(&first, it) && first.1.pid == it.1.pid;
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
    let share = |it: &Option<BeatLine>| it.as_ref().map_or(0.0, |it| it.share);
    let cost = |it: &BeatChange| share(&it.first).max(share(&it.second));
    changes.sort_by(|x, y| cost(y).total_cmp(&cost(x)));
    (changes, kept)
}

/// A beat, and the program of its process where that is known.
type OfProgram = (Option<String>, BeatLine);

fn program(beat: &BeatLine, programs: &Programs) -> Option<String> {
    programs.get(&beat.pid?).cloned()
}

/// Whether both are the same program's thread, or the same work of the kernel's.
fn same_source((program, a): &OfProgram, (other, b): &OfProgram) -> bool {
    a.name == b.name && a.kind == b.kind && program == other
}

/// Whether the intervals of both periods have something in common, or the periods differ by less than
/// a thousandth: clocks of two machines do.
fn same_period(a: &BeatLine, b: &BeatLine) -> bool {
    let overlap = a.rhythm.low <= b.rhythm.high && b.rhythm.low <= a.rhythm.high;
    overlap || (a.rhythm.period - b.rhythm.period).abs() < 1e-3 * a.rhythm.period
}
