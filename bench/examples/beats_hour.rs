//! Measures how much time and memory it takes to find the periodic sources in an hour of events on
//! many CPUs.
//!
//! `cargo figure beats_hour [CPUs] [minutes]`. Each CPU has a 250 Hz tick that calls a function,
//! with two softirqs on every third tick. A device interrupt and a thread occur at random times,
//! and a work item runs every second. Otherwise, the CPU is idle.
#![expect(clippy::print_stdout, reason = "an example that reports")]
#![expect(clippy::disallowed_methods, reason = "times itself")]

use std::time::{Duration, Instant};

use ticktax_analysis::BeatFinder;
use ticktax_bench::typed::Words;
use ticktax_fixture::{SplitMix64, books, header, replay, thread, whole};
use ticktax_model::recording::Row;
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

const TICK: i64 = 4_000_000;

struct Cast {
    timer: SourceId,
    tick: SourceId,
    sched: SourceId,
    rcu: SourceId,
    device: SourceId,
    work: SourceId,
    idle: SourceId,
    threads: Vec<SourceId>,
}

impl Cast {
    fn new(sources: &mut SourceTable, cpus: i32) -> Self {
        let mut kernel =
            |kind, name: &str, detail: &str| sources.intern(Source::kernel(kind, name, detail));
        Self {
            timer: kernel(Kind::Irq, "local_timer", ""),
            tick: kernel(Kind::Irq, "local_timer", "tick_nohz_handler"),
            sched: kernel(Kind::Softirq, "SCHED", ""),
            rcu: kernel(Kind::Softirq, "RCU", ""),
            device: kernel(Kind::Irq, "nvme0q1", ""),
            work: kernel(Kind::Task, "kworker/0:1", "vmstat_update"),
            idle: kernel(Kind::Idle, "idle", ""),
            threads: (0..4 * cpus)
                .map(|tid| {
                    let name = format!("worker-{tid}");
                    sources.intern(thread(Owner::Program, &name, "server", (1, tid)))
                })
                .collect(),
        }
    }
}

/// Generates the rows of one CPU from one tick to the next.
fn rows_of_tick(cast: &Cast, cpu: u32, number: i64, dice: &mut SplitMix64, rows: &mut Vec<Row>) {
    let at = number * TICK + i64::from(cpu) * 15_000;
    let mut add = |source, start, dur| rows.push(whole(cpu, start, dur, source));
    add(cast.tick, at + 500, 2_500);
    add(cast.timer, at, 4_000);
    if dice.between(0, 3) == 0 {
        add(cast.sched, at + 4_200, 3_000);
        add(cast.rcu, at + 7_300, 2_000);
    }
    if number % 250 == 0 {
        add(cast.work, at + 20_000, 9_000);
    }
    if dice.between(0, 2) == 0 {
        let start = at + 100_000 + dice.between(0, TICK / 2);
        add(cast.device, start, 3_000);
        let thread = usize::try_from(dice.between(0, 4)).unwrap_or(0) + 4 * cpu as usize;
        add(cast.threads[thread], start + 8_000, 40_000);
    }
    add(cast.idle, at + 10_000, TICK - 10_000);
}

fn main() {
    let mut words = Words::typed();
    let (cpus, minutes): (u32, i64) = (words.number(64), words.number(60));
    let mut sources = SourceTable::default();
    let cast = Cast::new(&mut sources, i32::try_from(cpus).unwrap_or(64));
    let mut finder = BeatFinder::new().with_halves();
    let (mut rows, mut count, mut dice) = (Vec::new(), 0_u64, SplitMix64::new(1));
    let mut taking = Duration::ZERO;
    for number in 0..minutes * 15_000 {
        rows.clear();
        for cpu in 0..cpus {
            rows_of_tick(&cast, cpu, number, &mut dice, &mut rows);
        }
        let begin = Instant::now();
        replay(&sources, &rows, &mut finder);
        taking += begin.elapsed();
        count += rows.len() as u64;
    }
    println!(
        "{count} rows taken in {:.1} s, {:.1} M a second",
        taking.as_secs_f64(),
        count as f64 / taking.as_secs_f64() / 1e6
    );
    let mut header = header();
    header.cpus = vec![books(0, 0, Nanos::from_secs(60 * minutes).0)];
    let begin = Instant::now();
    let found = finder.finish(&header, 2);
    println!(
        "{} sources searched in {:.1} s on 2 threads, {} lines",
        found.searched,
        begin.elapsed().as_secs_f64(),
        found.beats.len()
    );
    for line in found.beats.iter().take(8) {
        println!(
            "  {:.6} ms {} on {} CPUs",
            line.rhythm.period / 1e6,
            line.name,
            line.cpus.len()
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}
