//! Measures how accurate predictions are. Records loops with several settings on this machine. Then
//! predicts each loop from a recording of the same loop or a different one, and compares the
//! prediction with the figures the predicted loop measured itself.
//!
//! `cargo build --release -p ticktax && sudo -E cargo figure predict_live [ROUNDS [SECONDS]]`.
//! Tracing requires root.
#![allow(
    clippy::print_stdout,
    reason = "what it finds goes to the terminal, as a table for a document"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use ticktax_bench::live::{printed, tool};
use ticktax_model::comparison::{Comparison, Figure, Measure};
use ticktax_model::pace::{CpuClock, PaceStatement};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A way to pace a loop: its sleep call, rule and rate.
type Way = (&'static str, &'static str, &'static str);

const WAYS: [Way; 5] = [
    ("nanosleep", "remaining", "35"),
    ("clock_nanosleep-abs", "deadline", "35"),
    ("poll", "remaining", "35"),
    ("nanosleep", "remaining", "100"),
    ("clock_nanosleep-abs", "deadline", "100"),
];

/// Pairs of indices into [`WAYS`]: the loop to record, and the loop to predict from that recording.
const PAIRS: [(usize, usize); 9] = [
    (0, 0),
    (1, 1),
    (0, 1),
    (1, 0),
    (0, 2),
    (0, 3),
    (3, 0),
    (1, 4),
    (4, 1),
];

/// The figures to compare. Each has a heading, a measure, the factor by which it is multiplied for
/// printing, and a number of decimal places.
const FIGURES: [(&str, Measure, f64, usize); 4] = [
    ("FPS", Measure::Fps, 1.0, 2),
    ("CPU, %", Measure::Cpu, 100.0, 2),
    ("CPU as top has it, %", Measure::Top, 100.0, 1),
    ("late, median, µs", Measure::LateMedian, 1e-3, 0),
];

/// The figures that a loop measured for itself, in the order of [`FIGURES`].
type Measured = [f64; 4];

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let mut number = |default: u32| -> Outcome<u32> {
        Ok(match arguments.next() {
            Some(text) => text.parse()?,
            None => default,
        })
    };
    let (rounds, seconds) = (number(3)?, number(8)?);
    let tool = tool()?;
    let folder = env::temp_dir().join(format!("ticktax-predict-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = compare(&tool, &folder, rounds.max(1), seconds.max(5));
    fs::remove_dir_all(&folder)?;
    result
}

fn compare(tool: &Path, folder: &Path, rounds: u32, seconds: u32) -> Outcome<()> {
    let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); WAYS.len()];
    // Interleave the loops, so that a slowdown of the machine affects all of them.
    for round in 0..rounds {
        for (place, way) in WAYS.iter().enumerate() {
            let file = saved(folder, round, place);
            measured[place].push(record(tool, &file, way, seconds)?);
        }
    }
    println!(
        "{rounds} rounds of {seconds} s each. measured: the middle one of the rounds, the least and \
         the most. predicted: the same of the predictions from each round's recording; in: how many \
         of the measured values lie in the 95 % intervals of all predictions. A recording in which the loop's rhythm is not \
         found predicts nothing.\n"
    );
    println!(
        "| from | to | what | measured | predicted | off | in |\n|---|---|---|---|---|---|---|"
    );
    for (from, to) in PAIRS {
        let mut rows = Vec::new();
        for round in 0..rounds {
            let file = saved(folder, round, from);
            rows.extend(predict(tool, &file, &WAYS[from], &WAYS[to])?);
        }
        if rows.is_empty() {
            println!(
                "| {} | {} | no rhythm was found in it | | | | |",
                words(&WAYS[from]),
                words(&WAYS[to])
            );
            continue;
        }
        for (place, figure) in FIGURES.iter().enumerate() {
            let was: Vec<f64> = measured[to].iter().map(|figures| figures[place]).collect();
            println!(
                "| {} | {} | {} |",
                words(&WAYS[from]),
                words(&WAYS[to]),
                line(figure, was, &rows)
            );
        }
    }
    Ok(())
}

fn saved(folder: &Path, round: u32, place: usize) -> PathBuf {
    folder.join(format!("{round}-{place}.parquet"))
}

fn words((sleep, rule, rate): &Way) -> String {
    format!("{sleep} {rule} {rate}/s")
}

/// Records a loop and returns the figures that the loop measured for itself.
fn record(tool: &Path, file: &Path, way: &Way, seconds: u32) -> Outcome<Measured> {
    let (sleep, rule, rate) = way;
    let mut audit = Command::new(tool);
    audit.args(["audit", "--output", "/dev/null", "--save"]);
    audit.arg(file).arg("--").arg(tool);
    audit.args(["pace", "--sleep", sleep, "--rule", rule, "--rate", rate]);
    audit.args(["--for", &format!("{seconds}s"), "--format", "json"]);
    let statement: PaceStatement = serde_json::from_slice(&printed(&mut audit)?)?;
    let figures = statement.figures.ok_or("it had no frames")?;
    let clock = |clock| {
        let reading = statement
            .cpu
            .readings
            .iter()
            .find(|reading| reading.clock == clock);
        reading.map(|reading| reading.time.share_of(reading.elapsed))
    };
    let late = figures.wait.and_then(|wait| wait.quantile(0.5));
    Ok([
        figures.average_fps.ok_or("it had a single frame")?,
        clock(CpuClock::Thread).ok_or("no CPU time")?,
        clock(CpuClock::Stat).ok_or("no CPU time in /proc")?,
        late.ok_or("too few frames")?.0 as f64,
    ])
}

/// Predicts loop `to` from a recording of loop `from`. Returns `None` if no paced loop was detected
/// in the recording.
fn predict(tool: &Path, file: &Path, from: &Way, to: &Way) -> Outcome<Option<Comparison>> {
    let mut sim = Command::new(tool);
    sim.args(["sim", "--format", "json", "--asked", from.2, "--load"]);
    sim.arg(file);
    for (name, value) in [("sleep", to.0), ("rule", to.1), ("rate", to.2)] {
        sim.arg("--vary").arg(format!("{name}={value}"));
    }
    let output = sim.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && complaint.contains("rhythm") {
        return Ok(None);
    }
    if !output.status.success() {
        return Err(complaint.into_owned().into());
    }
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

fn line(
    (name, measure, factor, digits): &(&str, Measure, f64, usize),
    mut was: Vec<f64>,
    predictions: &[Comparison],
) -> String {
    let figure = |prediction: &Comparison| {
        let arm = prediction.arms.last()?;
        prediction.figure(arm, *measure).copied()
    };
    let figures: Vec<Figure> = predictions.iter().filter_map(figure).collect();
    let mut predicted: Vec<f64> = figures.iter().filter_map(|figure| figure.value).collect();
    let intervals = figures.iter().filter_map(|figure| figure.interval);
    let (low, high) = intervals.fold((f64::MAX, f64::MIN), |(low, high), (a, b)| {
        (low.min(a), high.max(b))
    });
    // Widen the interval by half a unit in the last printed place. Otherwise, a value that looks
    // equal to a bound when printed could count as outside.
    let room = 0.5 * 10_f64.powi(-i32::try_from(*digits).unwrap_or(0)) / factor;
    let inside = was
        .iter()
        .filter(|&&value| low - room <= value && value <= high + room)
        .count();
    let all = was.len();
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let (is, said) = (middle(&mut was), middle(&mut predicted));
    let spread = |values: &[f64]| {
        let ends = (values.first(), values.last());
        let (Some(first), Some(last)) = ends else {
            return String::new();
        };
        format!(
            "({:.digits$} to {:.digits$})",
            first * factor,
            last * factor
        )
    };
    format!(
        "{name} | {:.digits$} {} | {:.digits$} {} | {:+.1} % | {inside} of {all}",
        is * factor,
        spread(&was),
        said * factor,
        spread(&predicted),
        (said / is - 1.0) * 100.0,
    )
}
