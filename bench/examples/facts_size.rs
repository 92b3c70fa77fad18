//! Measures how many bytes an account row takes in facts files, by column and by the number of
//! windows per file.
//!
//! `cargo figure facts_size [SECONDS [WINDOWS [DIRECTORY]]]`, as root. Sums up this machine's
//! activity in WINDOWS windows (default 60) of SECONDS seconds each (default 6). To save time, each
//! window is written as if it were a minute long. The files are left in DIRECTORY.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use ticktax_analysis::totals::{Accumulator, Moment, Windows};
use ticktax_host::Proc;
use ticktax_model::facts::{Row, Table, Window, WindowLength};
use ticktax_model::recording::RowSink;
use ticktax_model::{Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_store::disk::Folder;
use ticktax_store::facts::PartWriter;
use ticktax_trace::{Output, TraceSettings, Tracer};

/// The facts table whose size is measured.
const ACCOUNTS: Table = Table::Accounts(WindowLength::Minute);

/// Length of an agent's windows, in seconds.
const MINUTE: i64 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let mut typed = std::env::args().skip(1);
    let mut number = |unless: i64| -> Result<i64, Box<dyn Error>> {
        let word = typed.next();
        Ok(word.map_or(Ok(unless), |word| word.parse())?.max(1))
    };
    let (seconds, count) = (number(6)?, number(60)?);
    let temporary = tempfile::tempdir()?;
    let folder = typed
        .next()
        .map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let windows = watch(seconds, usize::try_from(count)?)?;
    println!("windows a file | rows a file | bytes a row | of it beside the columns");
    let mut sizes = vec![1, 10, windows.len()];
    sizes.retain(|size| *size <= windows.len());
    sizes.dedup();
    let mut last = BTreeMap::new();
    for size in sizes {
        let (mut rows, mut bytes, mut files) = (0, 0, 0);
        let mut columns = BTreeMap::new();
        for (number, part) in windows.chunks_exact(size).enumerate() {
            let name = format!("{size}-{number}.parquet");
            let path = folder.join(&name);
            let mut part: Vec<Row> = part.iter().flat_map(accounts).collect();
            let place = Folder::open(&folder)?;
            PartWriter::new("a-host-of-somebody").write(
                place,
                name.as_ref(),
                ACCOUNTS,
                &mut part,
            )?;
            files += 1;
            rows += part.len();
            bytes += fs::metadata(&path)?.len();
            by_column(&path, &mut columns)?;
        }
        let within: u64 = columns.values().sum();
        let a_row = |bytes: u64| bytes as f64 / rows.max(1) as f64;
        println!(
            "{size:>14} | {:>11} | {:>11.1} | {:>24.1}",
            rows / files.max(1),
            a_row(bytes),
            a_row(bytes - within)
        );
        last = columns
            .into_iter()
            .map(|(name, bytes)| (name, a_row(bytes)))
            .collect();
    }
    println!("\ncolumn | bytes a row, in the largest file");
    for (name, bytes) in last {
        println!("{name} | {bytes:.2}");
    }
    Ok(())
}

fn accounts(window: &Window) -> impl Iterator<Item = Row> {
    window.rows(false).filter(|row| row.table() == ACCOUNTS)
}

/// Adds the compressed size of each column in a file to `columns`.
fn by_column(path: &Path, columns: &mut BTreeMap<String, u64>) -> Result<(), Box<dyn Error>> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    for group in reader.metadata().row_groups() {
        for column in group.columns() {
            let bytes = u64::try_from(column.compressed_size())?;
            *columns.entry(column.column_path().string()).or_default() += bytes;
        }
    }
    Ok(())
}

/// Sums up this machine's activity in `count` windows of `seconds` seconds, labelled as one-minute
/// windows.
fn watch(seconds: i64, count: usize) -> Result<Vec<Window>, Box<dyn Error>> {
    let proc = Proc::default();
    let online = proc.online().unwrap_or_default();
    let settings = TraceSettings {
        output: Output::Sums { entries: 1 << 14 },
        ..TraceSettings::default()
    };
    let mut tracer = Tracer::load(&settings, proc.room_for_cpus())?;
    tracer.start(&online, &online);
    let begin = now();
    let scale = MINUTE / seconds.min(MINUTE);
    let moment = |at: Nanos| Moment {
        at: Nanos(at.0 * scale),
        unix_ms: 1_800_000_000_000 + (at - begin).0 * scale / 1_000_000,
    };
    let every = Nanos::from_secs(scale);
    let windows = Windows::new(moment(begin), every);
    let mut accumulator = Accumulator::default().with_windows(windows);
    let mut sources = SourceTable::default();
    let mut minutes = Vec::new();
    while minutes.len() < count {
        thread::sleep(Duration::from_secs(1));
        let at = now();
        tracer.drain(at, &mut sources, &mut |sources, row| {
            accumulator.row(sources, row);
        });
        let closed = accumulator
            .windows()
            .map(|window| window.advance(moment(at)));
        let closed = closed.unwrap_or_default().into_iter();
        minutes.extend(closed.filter(|window| window.kind == WindowLength::Minute));
    }
    Ok(minutes)
}
