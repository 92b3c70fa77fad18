//! Judges the runs of a traffic experiment.
//!
//! Each block yields one observation of each comparison of arms: the sum of the logarithms of the
//! runs' figures, weighted as in the design. Effects are therefore ratios, and a slowdown of the
//! machine affects all arms equally. The effect is the mean over the blocks, with its interval. It
//! counts only if two criteria agree: Student's test, corrected for all effects and both measures
//! (Holm), and the interval.

use ticktax_analysis::judge::{Evidence, corrected, level};
use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, ArmEffect, Better, Comparison, Experiment, Figure, Measure, Metric, Scale, Setting,
    tabulate,
};
use ticktax_model::net_experiment::{
    BlocksNeeded, ConnectionFacts, CostUnit, CpuCost, Fact, TrafficArm, TrafficRecord,
};

use super::Factors;
use super::costs::costs;
use ticktax_experiment::design::{Comparison as ComparedArms, same};
use ticktax_experiment::detectable::{fewest_that, least_effect_by_t, mean_effect};
use ticktax_experiment::statistics::{mean, student_chance, variance};

/// The figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigures {
    /// Bits of user data per second.
    pub rate: f64,
    /// CPU time used.
    pub cpu: CpuCost,
    /// Packets sent per byte.
    pub packets: f64,
    /// System calls per byte, on both ends together.
    pub calls: f64,
    /// Bytes received.
    pub bytes: u64,
    /// Settings and properties that were in effect, as read back from the kernel.
    pub facts: Vec<Fact>,
    /// State of the connection when it was closed.
    pub connection: Option<ConnectionFacts>,
}

impl RunFigures {
    fn acks(&self) -> Option<f64> {
        let acks = f64::from(self.connection?.acks);
        Some(acks / self.bytes.max(1) as f64)
    }
}

/// A measured run of one arm within one block.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRun {
    /// Index of the block.
    pub block: u64,
    /// Index of the arm.
    pub arm: usize,
    /// Figures measured in the run.
    pub figures: RunFigures,
}

/// The factors that were varied.
pub struct Judged<'a> {
    /// The varied factors.
    pub factors: &'a Factors,
    /// All runs that belong to complete blocks.
    pub runs: &'a [MeasuredRun],
    /// The record to complete. The details of the arms, the design check and the costs are filled
    /// in.
    pub record: TrafficRecord,
}

/// The runs in complete blocks, and which arms have the same settings in effect.
pub(super) struct Blocks<'a> {
    /// Runs by block, then by arm.
    runs: Vec<Vec<Vec<&'a RunFigures>>>,
    /// For each arm, the index of the first arm with the same settings in effect.
    same: Vec<usize>,
}

impl<'a> Blocks<'a> {
    fn new(runs: &'a [MeasuredRun], arms: usize, same: Vec<usize>) -> Self {
        let count = runs.iter().map(|run| run.block + 1).max().unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(0);
        let mut blocks = vec![vec![Vec::new(); arms]; count];
        for run in runs {
            let block = usize::try_from(run.block).unwrap_or(usize::MAX);
            if let Some(arm) = blocks.get_mut(block).and_then(|arms| arms.get_mut(run.arm)) {
                arm.push(&run.figures);
            }
        }
        blocks.retain(|block| block.iter().all(|arm| !arm.is_empty()));
        Self { runs: blocks, same }
    }

    /// Returns one observation per block for a comparison of `figure`. `weights` has one entry per
    /// arm.
    fn compared(&self, weights: &[f64], figure: impl Fn(&RunFigures) -> f64) -> Vec<f64> {
        let compare = |block: &Vec<Vec<&RunFigures>>| {
            let arms = block.iter().zip(weights);
            let parts = arms.filter(|(_, weight)| **weight != 0.0);
            let parts = parts.map(|(runs, weight)| {
                let values: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
                weight * mean(&values)
            });
            parts.sum::<f64>()
        };
        self.runs.iter().map(compare).collect()
    }

    /// Returns the mean of `figure` in each block, for each group of arms with the same settings in
    /// effect.
    fn by_arm(&self, figure: impl Fn(&RunFigures) -> f64) -> Vec<Vec<f64>> {
        let first = self
            .same
            .iter()
            .enumerate()
            .filter(|(at, first)| at == *first);
        let first: Vec<usize> = first.map(|(at, _)| at).collect();
        let means = |block: &Vec<Vec<&RunFigures>>| {
            let arm = |&first: &usize| {
                let here = block
                    .iter()
                    .zip(&self.same)
                    .filter(|(_, same)| **same == first);
                let runs = here.flat_map(|(runs, _)| runs);
                mean(&runs.map(|run| figure(run)).collect::<Vec<f64>>())
            };
            first.iter().map(arm).collect::<Vec<f64>>()
        };
        self.runs.iter().map(means).collect()
    }

    /// Returns the CPU time per byte in each block, for each group of arms with the same settings
    /// in effect.
    pub(super) fn cpu(&self) -> Vec<Vec<f64>> {
        self.by_arm(|run| run.cpu.ns_per_byte)
    }

    /// Returns how many `unit`s there are per byte in each block, for each group of arms with the
    /// same settings in effect. Returns `None` if this is unknown for any run.
    pub(super) fn unit(&self, unit: CostUnit) -> Option<Vec<Vec<f64>>> {
        let mut runs = self.runs.iter().flatten().flatten();
        match unit {
            CostUnit::Byte => Some(self.by_arm(|_| 1.0)),
            CostUnit::Packet => Some(self.by_arm(|run| run.packets)),
            CostUnit::Call => Some(self.by_arm(|run| run.calls)),
            CostUnit::Ack => runs
                .all(|run| run.acks().is_some())
                .then(|| self.by_arm(|run| run.acks().unwrap_or_default())),
        }
    }
}

/// Returns a figure of a run.
type RunFigure = fn(&RunFigures) -> f64;

/// The measures to be tested, followed by the parts of the CPU time.
const MEASURES: [(Measure, RunFigure); 5] = [
    (Measure::CpuPerByte, |run| run.cpu.ns_per_byte),
    (Measure::Throughput, |run| run.rate),
    (Measure::SenderPerByte, |run| run.cpu.sender_ns_per_byte),
    (Measure::ReceiverPerByte, |run| run.cpu.receiver_ns_per_byte),
    (Measure::SoftirqPerByte, |run| run.cpu.softirq_ns_per_byte),
];
/// Number of measures to be tested.
const TESTED: usize = 2;

/// Judges the runs of an experiment and completes its record. `version` is the version of ticktax.
pub fn judge(judged: Judged<'_>, version: &str) -> Comparison {
    let Judged {
        factors,
        runs,
        mut record,
    } = judged;
    let combinations = factors.factorial().arms();
    let facts: Vec<Vec<Fact>> = (0..combinations.len())
        .map(|arm| factors.in_effect(arm, &agreed(runs, arm)))
        .collect();
    let same = same(&facts, Clone::clone);
    let (check, comparisons) = factors.factorial().check(&same);
    let blocks = Blocks::new(runs, combinations.len(), same.clone());
    let mut arms = Vec::new();
    for (at, (values, facts)) in combinations.iter().zip(facts).enumerate() {
        let (arm, details) = arm(runs, at);
        let settings = record.factors.iter().zip(values);
        let settings = settings
            .map(|(factor, &value)| Setting::new(&factor.name, &factor.values[value]))
            .collect();
        record.details.push(TrafficArm {
            facts,
            same_as: same[at],
            ..details
        });
        let named = Arm {
            label: format!("#{}", at + 1),
            settings,
            ..arm.0
        };
        arms.push((named, arm.1));
    }
    let plan = &mut record.plan;
    let mut effects = effects(&blocks, &comparisons, plan.resolution);
    if plan.pilot_blocks.is_none() {
        plan.spread = widest(&blocks, &comparisons);
        let tests = comparisons.len() * TESTED;
        plan.needed = needed(plan.spread, plan.resolution, tests);
    }
    record.check = check;
    record.costs = costs(&blocks);
    let (metrics, arms) = tabulate(arms);
    for (measure, effect) in &mut effects {
        let is_metric = |metric: &Metric| metric.id == measure.id();
        effect.metric = metrics.iter().position(is_metric).unwrap_or_default();
        let has_terms = |values: &Vec<usize>| {
            let is_set = |(factor, value): (usize, &usize)| {
                let term = effect.terms.iter().find(|term| term.factor == factor);
                *value == term.map_or(0, |term| term.value)
            };
            values.iter().enumerate().all(is_set)
        };
        effect.arm = combinations.iter().position(has_terms).unwrap_or_default();
    }
    Comparison {
        metrics,
        arms,
        effects: effects.into_iter().map(|(_, effect)| effect).collect(),
        ..Comparison::new(version, Experiment::Traffic(Box::new(record)))
    }
}

/// Evaluates the `runs` of a pilot. Returns the largest standard deviation between blocks of any
/// effect, as a fraction, and the number of tests in the main experiment. Returns `None` if the
/// spread cannot be estimated.
pub fn spread(factors: &Factors, runs: &[MeasuredRun]) -> Option<(f64, usize)> {
    let facts: Vec<Vec<Fact>> = (0..factors.arms())
        .map(|arm| factors.in_effect(arm, &agreed(runs, arm)))
        .collect();
    let same = same(&facts, Clone::clone);
    let (_, comparisons) = factors.factorial().check(&same);
    let blocks = Blocks::new(runs, factors.arms(), same);
    Some((widest(&blocks, &comparisons)?, comparisons.len() * 2))
}

/// Returns how many blocks are needed to find an effect of `resolution`, and how many to find one
/// of 1 %.
pub fn needed(spread: Option<f64>, resolution: f64, tests: usize) -> Vec<BlocksNeeded> {
    let mut shares = vec![resolution, 0.01];
    shares.dedup();
    let blocks_for = |share| {
        let blocks = spread.and_then(|spread| blocks_to_resolve(spread, share, tests));
        blocks.map(|blocks| BlocksNeeded { share, blocks })
    };
    shares.into_iter().filter_map(blocks_for).collect()
}

/// Returns the number of blocks with which four in five experiments find an effect of `resolution`
/// (a fraction).
///
/// `spread` is the standard deviation of the effect between blocks. `tests` is the number of tests
/// that are judged together. Returns `None` if an unreasonable number of blocks would be needed.
pub fn blocks_to_resolve(spread: f64, resolution: f64, tests: usize) -> Option<u64> {
    let (noise, effect) = (spread.ln_1p(), resolution.ln_1p());
    fewest_that(2, |blocks| {
        least_effect_by_t(noise, blocks, level(tests)) <= effect
    })
}

/// Returns the facts about an arm. A fact that differs between the arm's runs is reported as
/// changed.
fn agreed(runs: &[MeasuredRun], arm: usize) -> Vec<Fact> {
    let runs: Vec<&[Fact]> = runs
        .iter()
        .filter(|run| run.arm == arm)
        .map(|run| &*run.figures.facts)
        .collect();
    let mut agreed: Vec<Fact> = Vec::new();
    for fact in runs.iter().copied().flatten() {
        if agreed.iter().any(|known| known.name == fact.name) {
            continue;
        }
        if runs.iter().all(|facts| facts.contains(fact)) {
            agreed.push(fact.clone());
        } else {
            agreed.push(Fact::new(&fact.name, "changed between runs"));
        }
    }
    agreed
}

/// Averages an arm's figures over its runs.
fn arm(runs: &[MeasuredRun], at: usize) -> ((Arm, Vec<(Measure, Figure)>), TrafficArm) {
    let runs: Vec<&RunFigures> = runs
        .iter()
        .filter(|run| run.arm == at)
        .map(|run| &run.figures)
        .collect();
    let average = |figure: fn(&RunFigures) -> f64| {
        let values: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
        mean(&values)
    };
    let connections: Vec<ConnectionFacts> = runs.iter().filter_map(|run| run.connection).collect();
    let shortest = connections
        .iter()
        .map(|connection| connection.shortest_round_trip)
        .min();
    let smoothed: Nanos = connections
        .iter()
        .map(|connection| connection.round_trip)
        .sum();
    let count = i64::try_from(connections.len().max(1)).unwrap_or(i64::MAX);
    let acks: Option<Vec<f64>> = runs.iter().map(|run| run.acks()).collect();
    let details = TrafficArm {
        facts: Vec::new(),
        same_as: at,
        shortest_round_trip: shortest,
        round_trip: shortest.map(|_| Nanos(smoothed.0 / count)),
    };
    let measures = MEASURES.map(|(measure, figure)| (measure, Figure::from(average(figure))));
    let mut figures = measures.to_vec();
    figures.push((Measure::PacketsPerByte, average(|run| run.packets).into()));
    figures.push((Measure::CallsPerByte, average(|run| run.calls).into()));
    figures.extend(acks.map(|acks| (Measure::AcksPerByte, mean(&acks).into())));
    let arm = Arm {
        runs: runs.len() as u64,
        ..Arm::default()
    };
    ((arm, figures), details)
}

/// A comparison of one measure, not yet corrected for multiple tests.
struct Draft {
    logs: Vec<f64>,
    amounts: Vec<f64>,
    chance: Option<f64>,
    better: Better,
}

impl Draft {
    fn new(
        blocks: &Blocks<'_>,
        weights: &[f64],
        better: Better,
        figure: fn(&RunFigures) -> f64,
    ) -> Self {
        let logs = blocks.compared(weights, |run| figure(run).ln());
        let amounts = blocks.compared(weights, figure);
        let error = (variance(&logs) / logs.len().max(1) as f64).sqrt();
        let freedom = logs.len() as f64 - 1.0;
        let chance = (error > 0.0).then(|| student_chance(mean(&logs) / error, freedom));
        Self {
            logs,
            amounts,
            chance,
            better,
        }
    }

    fn judged(&self, chance: Option<f64>, resolution: f64, tests: usize) -> ArmEffect {
        let evidence = Evidence {
            effect: mean_effect(Scale::Relative, &self.logs),
            chance,
            better: self.better,
            limit: resolution,
        };
        let contrast = evidence.contrast(|| {
            let have = self.logs.len() as u64;
            let spread = variance(&self.logs).sqrt().exp_m1();
            let needed = blocks_to_resolve(spread, resolution, tests)?;
            Some(needed.saturating_sub(have).max(1))
        });
        ArmEffect {
            contrast,
            amount: mean_effect(Scale::Absolute, &self.amounts),
            ..ArmEffect::default()
        }
    }
}

/// Returns the effects of each comparison of arms on all measures.
fn effects(
    blocks: &Blocks<'_>,
    comparisons: &[ComparedArms],
    resolution: f64,
) -> Vec<(Measure, ArmEffect)> {
    let drafts = comparisons.iter().flat_map(|compared| {
        let tested = MEASURES[..TESTED].iter();
        tested.map(|(measure, figure)| {
            Draft::new(blocks, &compared.weights, measure.metric().better, *figure)
        })
    });
    let drafts: Vec<Draft> = drafts.collect();
    let chances: Vec<Option<f64>> = drafts.iter().map(|draft| draft.chance).collect();
    let tests = chances.len();
    let corrected = corrected(&chances, tests);
    let judged = drafts.iter().zip(corrected);
    let judged: Vec<ArmEffect> = judged
        .map(|(draft, chance)| draft.judged(chance, resolution, tests))
        .collect();
    let mut effects = Vec::new();
    for (compared, tested) in comparisons.iter().zip(judged.chunks(TESTED)) {
        let parts = MEASURES[TESTED..].iter().map(|(_, part)| ArmEffect {
            amount: mean_effect(Scale::Absolute, &blocks.compared(&compared.weights, part)),
            ..ArmEffect::default()
        });
        let all = tested.iter().cloned().chain(parts);
        effects.extend(MEASURES.iter().zip(all).map(|((measure, _), effect)| {
            let terms = compared.terms.clone();
            (*measure, ArmEffect { terms, ..effect })
        }));
    }
    effects
}

/// Returns the largest standard deviation between blocks, as a fraction, of any single factor's
/// effect. Returns `None` if there is no spread, or if there are fewer than two blocks.
fn widest(blocks: &Blocks<'_>, comparisons: &[ComparedArms]) -> Option<f64> {
    if blocks.runs.len() < 2 {
        return None;
    }
    let mains = comparisons
        .iter()
        .filter(|comparison| comparison.terms.len() == 1);
    let spreads = mains.flat_map(|comparison| {
        let deviation = |figure: fn(&RunFigures) -> f64| {
            variance(&blocks.compared(&comparison.weights, |run| figure(run).ln())).sqrt()
        };
        [
            deviation(|run| run.cpu.ns_per_byte),
            deviation(|run| run.rate),
        ]
    });
    let widest = spreads.fold(0.0, f64::max);
    (widest > 0.0).then(|| widest.exp_m1())
}

#[cfg(test)]
mod tests;
