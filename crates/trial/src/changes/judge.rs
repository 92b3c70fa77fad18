//! Decides which differences are too large to have occurred by chance.

use std::collections::BTreeMap;

use ticktax_analysis::judge::{Evidence, chance_of, corrected, difference};
use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};
use ticktax_model::comparison::{BeatChange, Better, Contrast, Effect};
use ticktax_model::kernel_words::SLEEP_FUNCTION;
use ticktax_model::statement::{Class, Statement};

/// Minimum number of blocks per side. With fewer, the estimate of the spread between them would be
/// unreliable.
const FEWEST: usize = 5;
/// 97.5 % quantile of the normal distribution. A 95 % margin is this many standard errors.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// One figure in both recordings, and the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Change {
    /// Value in the first recording, or `None` if it was not measured there.
    pub(super) first: Option<f64>,
    /// Value in the second recording, or `None` if it was not measured there.
    pub(super) second: Option<f64>,
    pub(super) contrast: Contrast,
}

impl Change {
    /// Returns the second value minus the first, or `None` if either is missing.
    pub(super) fn difference(&self) -> Option<f64> {
        Some(self.second? - self.first?)
    }
}

/// A difference with its evidence, before it is corrected for multiple tests.
pub(super) struct Draft {
    change: Change,
    evidence: Option<Evidence>,
}

impl Draft {
    /// Compares a figure between the two sides. The evidence is the figure's values in each side's
    /// blocks. If a side has too few blocks, there cannot be any evidence.
    pub(super) fn new(
        (first, second): (Option<f64>, Option<f64>),
        (a, b): (Option<Vec<f64>>, Option<Vec<f64>>),
    ) -> Self {
        let change = Change {
            first,
            second,
            ..Change::default()
        };
        let blocks = a.zip(b).filter(|(a, b)| a.len().min(b.len()) >= FEWEST);
        let evidence = change.difference().zip(blocks).map(|(value, (a, b))| {
            let (effect, chance) = difference(value, &a, &b);
            evidence(effect, chance)
        });
        Self { change, evidence }
    }

    /// Compares two figures that each have their own 95 % margin.
    pub(super) fn with_margins(change: Change, first: f64, second: f64) -> Self {
        let margin = first.hypot(second);
        let evidence = change.difference().map(|value| {
            let error = margin / NORMAL_QUANTILE;
            let chance = chance_of(value, error, f64::INFINITY);
            evidence(Effect::within(value, margin), chance)
        });
        Self { change, evidence }
    }

    fn finish(mut self, chance: Option<f64>) -> Change {
        if let Some(mut evidence) = self.evidence {
            evidence.chance = chance;
            self.change.contrast = evidence.contrast(|| None);
        }
        self.change
    }
}

fn evidence(effect: Effect, chance: f64) -> Evidence {
    Evidence {
        effect: Some(effect),
        chance: Some(chance),
        better: Better::Unknown,
        limit: 0.0,
    }
}

/// Judges several differences together, and corrects the probability of each for the number of
/// tests.
pub(super) fn judge(drafts: Vec<Draft>) -> Vec<Change> {
    let chances = drafts.iter().map(|draft| draft.evidence?.chance);
    let corrected = corrected(&chances.collect::<Vec<_>>(), drafts.len());
    let drafts = drafts.into_iter().zip(corrected);
    drafts.map(|(draft, chance)| draft.finish(chance)).collect()
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

/// Lists the periodic sources that appeared, disappeared or changed their period, most expensive
/// first. Also returns how many are unchanged.
///
/// Leaves out periodic waits, because they use no CPU time, and because the thread's periodic runs
/// show the same period.
pub(super) fn beats(
    a: Option<(&BeatStatement, &Programs)>,
    b: Option<(&BeatStatement, &Programs)>,
) -> (Vec<BeatChange>, u64) {
    let (Some(a), Some(b)) = (a, b) else {
        return (Vec::new(), 0);
    };
    let comparable = |(statement, programs): (&BeatStatement, &Programs)| {
        let is_comparable = |beat: &&BeatLine| !beat.by_ticktax && beat.kind != BeatKind::OffCpu;
        // Drop the event times kept for plots, because each side's own statement already contains
        // them.
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
        // If both sides have a source but with different periods, its period has changed. Sources
        // in different processes count as different sources.
        let moved = |second: &OfProgram| {
            let is_same = same_source(&first, second) && first.1.pid == second.1.pid;
            is_same && !serves_any_program(&first.1)
        };
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

/// A periodic source, with the name of the program that its process runs, if known.
type OfProgram = (Option<String>, BeatLine);

fn program(beat: &BeatLine, programs: &Programs) -> Option<String> {
    programs.get(&beat.pid?).cloned()
}

/// Returns whether both sources are threads of the same program, or the same kernel work.
fn same_source((program, a): &OfProgram, (other, b): &OfProgram) -> bool {
    a.name == b.name && a.kind == b.kind && program == other
}

/// Returns whether the source is the timer function that wakes sleeping threads in any program. If
/// its period differs, the sleeper may have been a different program.
fn serves_any_program(beat: &BeatLine) -> bool {
    beat.pid.is_none() && beat.name.ends_with(SLEEP_FUNCTION)
}

/// Returns whether two periods count as the same: their confidence intervals overlap, or they
/// differ by less than 0.1 %, as the clocks of two machines may.
fn same_period(a: &BeatLine, b: &BeatLine) -> bool {
    let overlap = a.rhythm.low <= b.rhythm.high && b.rhythm.low <= a.rhythm.high;
    overlap || (a.rhythm.period - b.rhythm.period).abs() < 1e-3 * a.rhythm.period
}
