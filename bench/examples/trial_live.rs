//! Measures how often a trial on this machine reports a difference between two equivalent arms (the
//! settings that a trial compares). For comparison, applies the methods of hyperfine and netperf to
//! runs from the same trials.
//!
//! `cargo build --release -p ticktax && cargo figure trial_live [TRIALS [BLOCKS]]`. The measured
//! command computes and never sleeps. The two arms differ only by a nanosecond of timer slack. For
//! hyperfine and netperf, both arms consist of successive noise runs, which all use the trial's
//! first arm.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use ticktax_bench::told_apart::{NETPERF_RUNS, hyperfine_tells_apart, netperf_tells_apart};
use ticktax_bench::typed::Words;
use ticktax_experiment::statistics::{mean, variance};
use ticktax_model::comparison::{Comparison, Experiment, RunPurpose};

/// Number of runs per arm in hyperfine's test.
const HYPERFINE_RUNS: usize = 20;
/// A shell loop that takes a few milliseconds.
const COMMAND: &str = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = Words::typed();
    let (trials, blocks): (u64, u64) = (words.number(200), words.number(10));
    let folder = tempfile::tempdir()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let (mut ours, mut theirs, mut netperfs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut holds, mut means, mut spreads) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=trials {
        let comparison = trial(&folder.path().join("journal"), blocks, seed)?;
        let compared = comparison.effects.first().ok_or("nothing was compared")?;
        let effect = compared.contrast.effect;
        ours.push(compared.contrast.verdict.differs());
        holds.push(effect.is_some_and(|effect| effect.may_be_none()));
        let times = noise(&comparison);
        let (a, b) = times
            .get(..2 * HYPERFINE_RUNS)
            .ok_or("runs failed")?
            .split_at(HYPERFINE_RUNS);
        theirs.push(hyperfine_tells_apart(a, b));
        netperfs.push(netperf_tells_apart(&times, 0.0).0);
        means.push(mean(&times));
        spreads.push(variance(&times).sqrt() / mean(&times));
    }
    let after = fs::read_to_string("/proc/loadavg")?;
    let load_of = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    println!(
        "{trials} trials of {blocks} blocks; a run takes {:.1} ms, its standard deviation is {:.1} % of that (medians of the \
         trials); load average {} before, {} after.\n",
        1e3 * median(&mut means),
        100.0 * median(&mut spreads),
        load_of(&load),
        load_of(&after)
    );
    println!("| way | equal arms told apart | % |\n|---|--:|--:|");
    for (way, verdicts) in [
        (format!("`ticktax try`, {blocks} blocks"), &ours),
        ("hyperfine, 20 + 20 runs".to_owned(), &theirs),
        ("netperf".to_owned(), &netperfs),
    ] {
        let apart = verdicts.iter().filter(|differs| **differs).count();
        println!("| {way} | {apart} of {trials} | {:.1} |", percent(verdicts));
    }
    println!(
        "\nIts interval of 95 % holds 0 in {:.1} %.",
        percent(&holds)
    );
    Ok(())
}

/// Runs one trial with the release build of `ticktax`, which is one directory above this example.
fn trial(journal: &Path, blocks: u64, seed: u64) -> Result<Comparison, Box<dyn Error>> {
    let own = env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).ok_or("no folder")?;
    let output = Command::new(folder.join("ticktax"))
        .args(["try", "proc.timer_slack=50000,50001", "--settle", "0s"])
        .args(["--format", "json", "--blocks", &blocks.to_string()])
        .args(["--noise-runs", &NETPERF_RUNS.to_string()])
        .args(["--seed", &seed.to_string()])
        .arg("--journal")
        .arg(journal)
        .args(["--", "sh", "-c", COMMAND])
        .output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).map_err(|_| said().into())
}

/// Returns the times of the noise runs, in seconds. These are successive runs of the first arm.
fn noise(comparison: &Comparison) -> Vec<f64> {
    let Experiment::Trial(record) = &comparison.experiment else {
        return Vec::new();
    };
    let runs = record.runs.iter();
    let alone = runs.filter(|run| run.purpose == RunPurpose::Noise);
    let times = alone.filter_map(|run| run.values.first().copied().flatten());
    times.map(|ns| ns / 1e9).collect()
}

fn percent(verdicts: &[bool]) -> f64 {
    100.0 * verdicts.iter().filter(|differs| **differs).count() as f64
        / verdicts.len().max(1) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
