//! Measures the shortest gap that the spin probe can detect, compared with oslat.
//!
//! The spin probe and oslat take turns on the same CPU, with `SCHED_FIFO`. The rest of the machine
//! is not starved, because the kernel reserves 5 % of the time for threads that are not real-time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use ticktax_model::Nanos;
use ticktax_probes::SchedulingPolicy;
use ticktax_probes::clock::Clock;
use ticktax_probes::spin::{SpinProbe, SpinSettings};

use crate::peer::{Running, Tool};
use crate::table::{Series, Table};
use crate::tracing::INTERVAL;
use crate::{Bench, Outcome, machine};

const OSLAT: Tool = Tool {
    program: "oslat",
    package: "rt-tests",
};

const PRIORITY: u8 = 50;

/// A tool's results.
#[derive(Default)]
struct Results {
    /// Time between two successive readings of the clock, in ns.
    turn: Series,
    /// Shortest time between two readings that counts as a gap, in ns.
    threshold: Series,
    /// Shortest observed gap, in ns.
    shortest: Series,
    /// Number of gaps of at least 1 µs, per second.
    long: Series,
    /// Number of gaps shorter than 1 µs, per second.
    short: Series,
    /// Longest gap, in µs.
    longest: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## spin");
    machine::pin(bench.other)?;
    let oslat = OSLAT.find();
    let (mut ours, mut theirs) = (Results::default(), Results::default());
    for _ in 0..bench.choose(9, 2) {
        bench.go_on()?;
        spin(bench, &mut ours)?;
        if let Some(oslat) = &oslat {
            bench.go_on()?;
            run_oslat(bench, oslat, &mut theirs)?;
        }
    }
    let mut table = Table::new([
        "",
        "n",
        "one turn of the loop",
        "shortest time that counts",
        "shortest seen",
        "gaps/s < 1 µs",
        "gaps/s ≥ 1 µs",
        "longest",
    ]);
    ours.add_to(&mut table, "ticktax spin probe");
    if oslat.is_some() {
        theirs.add_to(
            &mut table,
            "oslat (told apart in whole µs, < 2 µs is no gap)",
        );
    }
    table.print();
    println!("\nMedians over the turns, least to most in brackets.");
    let (turn, shortest) = (ours.turn.median(), ours.threshold.median());
    let met = |is: bool| if is { "met" } else { "not met" };
    println!(
        "Targets: loop ≤ 30 ns: {}; smallest gap ≤ 100 ns: {}.",
        met(turn <= 30.0),
        met(shortest <= 100.0)
    );
    Ok(())
}

impl Results {
    fn add_to(&self, table: &mut Table, name: &str) {
        let cell = |series: &Series, digits: usize, unit: &str| {
            if series.n() == 0 {
                return "-".to_owned();
            }
            let median = series.median();
            format!("{median:.digits$}{unit} ({})", series.range(digits))
        };
        table.row([
            name.to_owned(),
            self.turn.n().to_string(),
            cell(&self.turn, 1, " ns"),
            cell(&self.threshold, 0, " ns"),
            cell(&self.shortest, 0, " ns"),
            cell(&self.short, 0, ""),
            cell(&self.long, 0, ""),
            cell(&self.longest, 0, " µs"),
        ]);
    }
}

/// Returns how long to run at a real-time priority, in seconds.
fn seconds(bench: &Bench) -> u16 {
    bench.choose(3, 1)
}

fn spin(bench: &Bench, results: &mut Results) -> Outcome {
    let clock = Clock::calibrate();
    let settings = SpinSettings {
        policy: SchedulingPolicy::Fifo(PRIORITY),
        ..SpinSettings::default()
    };
    let cpus = [bench.measured].into_iter().collect();
    let (mut shortest, mut longest) = (u64::MAX, 0);
    let (mut short, mut long) = (0_u32, 0_u32);
    let floor = clock.to_ticks(Nanos::from_micros(1));
    let mut count = |ticks: u64| {
        shortest = shortest.min(ticks);
        longest = longest.max(ticks);
        *(if ticks < floor { &mut short } else { &mut long }) += 1;
    };
    let mut probe = SpinProbe::start(&clock, &cpus, settings)?;
    let end = ticktax_probes::clock::now() + Nanos::from_secs(seconds(bench).into());
    while ticktax_probes::clock::now() < end {
        std::thread::sleep(INTERVAL);
        probe.drain(|_, gap| count(gap.end_counter - gap.start_counter));
    }
    let reports = probe.stop(|_, gap| count(gap.end_counter - gap.start_counter));
    let report = reports.first().ok_or("the probe does not report")?;
    if let Some(refusal) = &report.policy.refusal {
        return Err(format!("SCHED_FIFO: {refusal}").into());
    }
    let measured = clock.to_nanos(report.ended_counter - report.started_counter);
    results.turn.push(report.loop_median_ns);
    results.threshold.push(report.threshold.0 as f64);
    results.shortest.push(clock.to_nanos(shortest).0 as f64);
    results
        .short
        .push(f64::from(short) / measured.as_secs_f64());
    results.long.push(f64::from(long) / measured.as_secs_f64());
    results
        .longest
        .push(clock.to_nanos(longest).as_secs_f64() * 1e6);
    Ok(())
}

fn run_oslat(bench: &Bench, oslat: &Path, results: &mut Results) -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("oslat.json");
    let mut command = Command::new(oslat);
    command.args(["-q", "-b", "1024", "-f", &PRIORITY.to_string()]);
    command.args(["-D", &seconds(bench).to_string()]);
    command.args(["-c", &bench.measured.to_string()]);
    command.args(["-C", &bench.other.to_string()]);
    let mut running = Running::start(command.arg(format!("--json={}", file.display())))?;
    running.finish(Duration::from_secs(30))?;
    let text = std::fs::read_to_string(&file)?;
    let json: Value = serde_json::from_str(&text)?;
    let thread = &json["thread"]["0"];
    let number = |value: &Value| value.as_f64().ok_or("oslat's JSON lacks a number");
    let histogram = thread["histogram"]
        .as_object()
        .ok_or("oslat's JSON has no histogram")?;
    let (mut turns, mut gaps) = (0.0, 0.0);
    for (microseconds, count) in histogram {
        let count = number(count)?;
        turns += count;
        // Bucket 1 counts all iterations that took less than 2 µs. Almost none of these were
        // interrupted, so they are not gaps.
        gaps += if microseconds == "1" { 0.0 } else { count };
    }
    let duration = number(&thread["duration"])?;
    results.turn.push(duration * 1e9 / turns);
    results.threshold.push(2_000.0);
    let min = histogram.keys().filter(|key| *key != "1");
    let min = min.filter_map(|key| key.parse::<f64>().ok());
    results
        .shortest
        .push(1e3 * min.fold(f64::INFINITY, f64::min));
    results.long.push(gaps / duration);
    results.longest.push(number(&thread["max"])?);
    Ok(())
}
