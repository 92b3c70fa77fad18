//! Measures how much longer writing and reading a recording takes because of its checksums.
//!
//! `cargo figure recording_checksums [rows] [rounds]`. Writes a synthetic recording and reads it
//! back, alternately with and without verifying checksums. To skip verification, the benchmark
//! changes the name of the program in the file's footer. Files cannot be written without checksums,
//! so the cost of computing them is measured separately: in each round, the benchmark computes a
//! CRC-32 over as many bytes as the file contains.
#![expect(clippy::print_stdout, reason = "an example that reports")]
#![expect(clippy::disallowed_methods, reason = "times itself")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ticktax_model::recording::{Header, Level, Row, RowSink, World};
use ticktax_model::{Cpu, Kind, Nanos, Source, SourceId, SourceTable, Span};
use ticktax_store::recording::{RecordingReader, RecordingWriter};

/// Number of threads on the synthetic machine.
const THREADS: i64 = 100;

/// Returns a random number below `below`, using Knuth's MMIX constants.
fn dice(seed: &mut u64, below: i64) -> i64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    i64::try_from(*seed >> 33).unwrap_or(0) % below
}

/// Generates consecutive spans on two CPUs.
fn rows(count: usize, sources: &mut SourceTable) -> Vec<Row> {
    let ids: Vec<SourceId> = (0..THREADS)
        .map(|number| sources.intern(Source::kernel(Kind::Softirq, &format!("work-{number}"), "")))
        .collect();
    let (mut seed, mut now) = (1, [Nanos::ZERO; 2]);
    let mut row = |place: usize| {
        let cpu = place % 2;
        let dur = Nanos(200 + dice(&mut seed, 40_000));
        let start = now[cpu];
        now[cpu] = start + dur;
        Row::Span(Span {
            cpu: Cpu(u32::from(cpu == 1)),
            start,
            dur,
            self_time: Nanos(dur.0 - dice(&mut seed, 200)),
            source: ids[usize::try_from(dice(&mut seed, THREADS)).unwrap_or(0)],
        })
    };
    (0..count).map(&mut row).collect()
}

fn write(path: &Path, sources: &SourceTable, rows: &[Row]) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    let mut writer = RecordingWriter::create(path)?;
    for row in rows {
        writer.row(sources, row);
    }
    writer.finish(&Header::new(World::Simulated, Level::Kernel, "0"))?;
    Ok(begin.elapsed())
}

fn read(path: &Path, count: usize) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    let mut seen = 0;
    RecordingReader::open(path)?.replay(&mut |_, _| seen += 1)?;
    let took = begin.elapsed();
    assert_eq!(seen, count, "all rows come back");
    Ok(took)
}

/// Replaces the name of the program that wrote the file, so that readers do not verify its
/// checksums.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    const MAKER: &[u8] = b"ticktax version ";
    let place = bytes
        .windows(MAKER.len())
        .rposition(|window| window == MAKER);
    let place = place.expect("the footer names who made the file");
    bytes[place] = b'x';
    bytes
}

/// Returns the median in ms.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments
        .next()
        .map_or(Ok(1_000_000), |word| word.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(15), |word| word.parse())?;
    let folder = tempfile::tempdir()?;
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    let mut sources = SourceTable::default();
    let rows = rows(count, &mut sources);
    write(&with, &sources, &rows)?;
    let bytes = fs::read(&with)?;
    fs::write(&without, without_checksums(bytes.clone()))?;
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..rounds.max(1) {
        times[0].push(write(&with, &sources, &rows)?);
        let begin = Instant::now();
        std::hint::black_box(crc32fast::hash(&bytes));
        times[1].push(begin.elapsed());
        times[2].push(read(&with, count)?);
        times[3].push(read(&without, count)?);
    }
    let [written, hashed, checked, unchecked] = times.each_mut().map(|times| median(times));
    println!("{count} rows, {} bytes, medians of {rounds}", bytes.len());
    let share = hashed / written * 100.0;
    println!("write  {written:.1} ms, of it checksums {hashed:.2} ms ({share:.2} %)");
    let share = (checked / unchecked - 1.0) * 100.0;
    println!("read   {checked:.2} ms, without checksums {unchecked:.2} ms ({share:+.1} %)");
    Ok(())
}
