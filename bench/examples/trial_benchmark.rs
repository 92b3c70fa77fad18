//! Tests the verdicts of trials on simulated runs whose true effect is known. Measures how often
//! two equal arms are reported as different, how often the confidence interval contains the true
//! effect, and how often an effect is detected. An arm is one of the settings that a trial
//! compares. For comparison, applies the methods of hyperfine and netperf to the same runs.
//!
//! `cargo figure trial_benchmark [trials] [seed]`. The same seed always produces the same figures.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use ticktax_bench::on_all_cpus;
use ticktax_bench::told_apart::{NETPERF_RUNS, hyperfine_tells_apart, netperf_tells_apart};
use ticktax_bench::typed::Words;
use ticktax_experiment::plan;
use ticktax_experiment::statistics::mean;
use ticktax_fixture::{Draws, RunLaw, noise_runs, timed_trial};
use ticktax_model::comparison::{ArmEffect, Better};
use ticktax_trial::{compare_lists, judge};

/// Number of noise runs, which precede a trial and all use its first arm.
const NOISE: usize = 12;

fn main() {
    let mut words = Words::typed();
    let (trials, seed): (u64, u64) = (words.number(2000), words.number(7));
    let seeds: Vec<u64> = (0..trials).map(|trial| seed * 1_000_003 + trial).collect();
    println!("{trials} trials a cell, seed {seed}\n");
    false_verdicts(&seeds);
    coverage(&seeds);
    power(&seeds);
    lists(&seeds);
}

/// Calls `of` for each seed. Returns how often it returned true, in percent.
fn share(seeds: &[u64], of: impl Fn(u64) -> bool + Sync) -> f64 {
    let results = on_all_cpus(seeds, |&seed| of(seed));
    let count = results.iter().filter(|result| **result).count();
    100.0 * count as f64 / seeds.len().max(1) as f64
}

/// Returns the first `runs` run times in a series. All methods get the same series for the same
/// seed.
fn times(law: RunLaw, runs: usize, seed: u64) -> Vec<f64> {
    law.times(&mut Draws::new(seed), runs)
}

/// Simulates a trial in which the two arms alternate within each block, and returns ticktax's
/// comparison of the arms.
fn by_turns(law: RunLaw, blocks: u64, effect: f64, seed: u64) -> ArmEffect {
    let slots = plan(2, blocks, seed ^ 0xabba);
    let slots: Vec<(u64, u64, usize)> = slots
        .iter()
        .map(|slot| (slot.block, slot.position, slot.arm))
        .collect();
    let mut trial = timed_trial(&slots, &times(law, slots.len(), seed), effect);
    let ahead = law.times(&mut Draws::new(!seed), NOISE);
    trial.record.runs.splice(0..0, noise_runs(&ahead));
    judge(trial, &[], "0").effects.remove(0)
}

/// Runs A `runs` times, then B `runs` times, and returns whether hyperfine's method reports a
/// difference.
fn hyperfine(law: RunLaw, runs: usize, effect: f64, seed: u64) -> bool {
    let times = times(law, 2 * runs, seed);
    let (a, b) = times.split_at(runs);
    let b: Vec<f64> = b.iter().map(|time| time * (1.0 + effect)).collect();
    hyperfine_tells_apart(a, &b)
}

/// Returns whether netperf's method reports a difference between A and B, and how many runs it
/// needs.
fn netperf(law: RunLaw, effect: f64, seed: u64) -> (bool, usize) {
    netperf_tells_apart(&times(law, NETPERF_RUNS, seed), effect)
}

/// Prints how often equal arms are reported as different.
fn false_verdicts(seeds: &[u64]) {
    println!("Equal arms told apart, % of trials");
    println!(
        "| law | 6 blocks | 10 blocks | 20 blocks | hyperfine, 20 + 20 runs | netperf | its runs |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for law in RunLaw::ALL {
        let ours = [6, 10, 20].map(|blocks| {
            let apart = |seed| by_turns(law, blocks, 0.0, seed).contrast.verdict.differs();
            share(seeds, apart)
        });
        let theirs = share(seeds, |seed| hyperfine(law, 20, 0.0, seed));
        let netperf_s = share(seeds, |seed| netperf(law, 0.0, seed).0);
        let runs = on_all_cpus(seeds, |&seed| netperf(law, 0.0, seed).1 as f64);
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {theirs:.1} | {netperf_s:.1} | {:.0} |",
            law.name(),
            ours[0],
            ours[1],
            ours[2],
            mean(&runs)
        );
    }
    println!();
}

/// Prints how often the confidence interval contains the true effect of 3 %.
fn coverage(seeds: &[u64]) {
    const EFFECT: f64 = 0.03;
    println!(
        "Intervals of 95 % that hold an effect of 3 %, % of trials; in brackets their mean width, points"
    );
    println!("| law | 5 blocks | 6 blocks | 10 blocks | 20 blocks |");
    println!("|---|--:|--:|--:|--:|");
    for law in RunLaw::ALL {
        let cells = [5, 6, 10, 20].map(|blocks| {
            let effects = on_all_cpus(seeds, |&seed| {
                by_turns(law, blocks, EFFECT, seed).contrast.effect
            });
            let effects: Vec<_> = effects.into_iter().flatten().collect();
            let holds = effects
                .iter()
                .filter(|effect| effect.low <= EFFECT && EFFECT <= effect.high);
            let held = 100.0 * holds.count() as f64 / effects.len().max(1) as f64;
            let widths: Vec<f64> = effects
                .iter()
                .map(|effect| 100.0 * (effect.high - effect.low))
                .collect();
            format!("{held:.1} ({:.1})", mean(&widths))
        });
        println!("| {} | {} |", law.name(), cells.join(" | "));
    }
    println!();
}

/// Prints how often each method detects an effect, for effects of several sizes.
fn power(seeds: &[u64]) {
    const EFFECTS: [f64; 6] = [0.005, 0.01, 0.02, 0.03, 0.05, 0.1];
    println!("Arms told apart, % of trials, by how much longer the second takes");
    println!("| law | way | 0.5 % | 1 % | 2 % | 3 % | 5 % | 10 % | detectable, median |");
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for law in RunLaw::ALL {
        for blocks in [6, 10, 20] {
            let found = EFFECTS.map(|effect| {
                let apart = |seed| {
                    by_turns(law, blocks, effect, seed)
                        .contrast
                        .verdict
                        .differs()
                };
                format!("{:.0}", share(seeds, apart))
            });
            let ahead = on_all_cpus(seeds, |&seed| by_turns(law, blocks, 0.0, seed).detectable);
            let mut ahead: Vec<f64> = ahead.into_iter().flatten().collect();
            ahead.sort_by(f64::total_cmp);
            let middle = ahead.get(ahead.len() / 2).copied().unwrap_or(f64::NAN);
            let name = law.name();
            let cells = found.join(" | ");
            println!(
                "| {name} | {blocks} blocks | {cells} | {:.1} % |",
                100.0 * middle
            );
        }
        let shares = EFFECTS.map(|effect| {
            let apart = |seed| hyperfine(law, 20, effect, seed);
            format!("{:.0}", share(seeds, apart))
        });
        println!(
            "| {} | hyperfine, 20 + 20 runs | {} | |",
            law.name(),
            shares.join(" | ")
        );
        let shares = EFFECTS.map(|effect| {
            let apart = |seed| netperf(law, effect, seed).0;
            format!("{:.0}", share(seeds, apart))
        });
        println!("| {} | netperf | {} | |", law.name(), shares.join(" | "));
    }
    println!();
}

/// Prints how often `ticktax compare` reports a difference between two lists of run times that were
/// measured one after the other and have the same distribution.
fn lists(seeds: &[u64]) {
    println!(
        "Two equal lists told apart, one after the other, % of comparisons; in brackets intervals that hold 0"
    );
    println!("| law | 6 + 6 values | 10 + 10 | 20 + 20 | 100 + 100 |");
    println!("|---|--:|--:|--:|--:|");
    for law in RunLaw::ALL {
        let cells = [6, 10, 20, 100].map(|values| {
            let results = on_all_cpus(seeds, |&seed| {
                let times = times(law, 2 * values, seed);
                let (a, b) = times.split_at(values);
                let comparison = compare_lists(a, b, Better::Unknown, 0.05);
                (
                    comparison.contrast.verdict.differs(),
                    comparison
                        .contrast
                        .effect
                        .is_some_and(|effect| effect.may_be_none()),
                )
            });
            let part = |of: fn(&(bool, bool)) -> bool| {
                let count = results.iter().filter(|result| of(result)).count();
                100.0 * count as f64 / results.len().max(1) as f64
            };
            format!(
                "{:.1} ({:.1})",
                part(|result| result.0),
                part(|result| result.1)
            )
        });
        println!("| {} | {} |", law.name(), cells.join(" | "));
    }
}
