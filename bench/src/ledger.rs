//! Measures how many rows per second the ledger processes, and how many can be written to a file
//! and read back.
//!
//! The first table comes from the ledger's own benchmark, whose recording is synthetic and always
//! the same. The second table comes from a new recording of this machine.

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ticktax_analysis::Auditor;
use ticktax_model::Nanos;
use ticktax_model::recording::RowSink;
use ticktax_probes::clock::now;
use ticktax_store::recording::{RecordingReader, RecordingWriter};

use crate::peer::length;
use crate::ping_pong;
use crate::recording::Recording;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Target: the ledger processes at least this many million rows per second on one core.
const TARGET: f64 = 10.0;

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## ledger");
    made_up();
    bench.go_on()?;
    live(bench)
}

/// Runs the ledger's own benchmark and prints the results as a table.
fn made_up() {
    let Some(cargo) = env::var_os("CARGO") else {
        println!("\nThe ledger's own benchmark is left out: it needs `cargo run`.");
        return;
    };
    let mut command = Command::new(cargo);
    command.args([
        "bench",
        "--quiet",
        "-p",
        "ticktax-analysis",
        "--bench",
        "ledger",
    ]);
    let said = command.output().map(|output| output.stdout);
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    let mut table = Table::new(["made up: rows through the ledger", "M rows/s", "target"]);
    for line in said.lines() {
        let Some((name, result)) = line.split_once(": ") else {
            continue;
        };
        let rate = result.split_whitespace().next();
        let rate = rate.and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let met = if rate >= TARGET { "met" } else { "not met" };
        let target = format!("≥ {TARGET} M/s: {met}");
        table.row([name.to_owned(), result.to_owned(), target]);
    }
    table.print();
}

/// Measures the ledger, the writer and the reader in turn, on a recording of this machine.
fn live(bench: &Bench) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("live.parquet");
    record(bench, &path)?;
    let recording = Recording::read(&path)?;
    let again = folder.path().join("again.parquet");
    let count = recording.rows.len();
    let (mut ledger, mut write, mut read) = (Series::new(), Series::new(), Series::new());
    let mut accounting = Series::new();
    for _ in 0..bench.choose(9, 3) {
        bench.go_on()?;
        ledger.push(rate(count, &mut || {
            recording.audit(Auditor::books());
            Ok(())
        })?);
        accounting.push(rate(count, &mut || {
            recording.audit(Auditor::new(&recording.header.machine).without_beats());
            Ok(())
        })?);
        write.push(rate(count, &mut || {
            let mut writer = RecordingWriter::create(&again).map_err(|error| error.to_string())?;
            for row in &recording.rows {
                writer.row(&recording.sources, row);
            }
            let finished = writer.finish(&recording.header);
            finished.map_err(|error| error.to_string())
        })?);
        read.push(rate(count, &mut || {
            let mut reader = RecordingReader::open(&again).map_err(|error| error.to_string())?;
            let mut sum = Nanos::ZERO;
            reader
                .replay(&mut |_, row| sum += row.span().self_time)
                .map_err(|error| error.to_string())?;
            assert!(sum != Nanos::ZERO);
            Ok(())
        })?);
    }
    println!(
        "\nLive: {count} rows of {} sources, {:.1} bytes a row in the file.",
        recording.sources.len(),
        length(&again) as f64 / count as f64
    );
    let mut table = Table::new(["live", "n", "M rows/s, median", "least to most", "target"]);
    for (name, series, target) in [
        ("ledger, to the statement", &ledger, Some(TARGET)),
        ("ledger and accounting check", &accounting, None),
        ("write as Parquet", &write, None),
        ("read from Parquet", &read, None),
    ] {
        let median = series.median();
        let met = |target: f64| if median >= target { "met" } else { "not met" };
        table.row([
            name.to_owned(),
            series.n().to_string(),
            format!("{median:.1}"),
            series.range(1),
            target.map_or("-".to_owned(), |min| format!("≥ {min} M/s: {}", met(min))),
        ]);
    }
    table.print();
    Ok(())
}

/// Records this machine with the spin probe while two threads switch contexts, so that rows of
/// every kind occur.
fn record(bench: &Bench, path: &Path) -> Outcome {
    let tool = Tool::find()?;
    let seconds = bench.choose(20, 3);
    let cpu = bench.measured;
    let length = Nanos::from_secs(i64::from(seconds) + 1);
    let path = path.display().to_string();
    thread::scope(|scope| {
        let maker =
            scope.spawn(move || ping_pong::run_paced(cpu, 25, Nanos::from_millis(1), length));
        let statement = tool
            .audit(seconds, &["--keep", "spans", "--save", &path])?
            .statement(bench);
        maker
            .join()
            .map_err(|_| "the generator panicked".to_owned())?
            .map_err(|error| error.to_string())?;
        statement
    })?;
    bench.pause(Duration::from_millis(500))
}

/// Returns how many million rows per second `work` processes.
fn rate(rows: usize, work: &mut dyn FnMut() -> Result<(), String>) -> Result<f64, String> {
    let begin = now();
    work()?;
    Ok(rows as f64 / (now() - begin).as_secs_f64() / 1e6)
}
