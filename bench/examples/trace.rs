//! Loads the tracer, traces for eight seconds, and prints how long each step took and what was
//! recorded.
//!
//! `cargo run --release -p ticktax-bench --example trace -- [--sums]`
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example prints its results and times itself"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ticktax_host::Proc;
use ticktax_model::{Nanos, SourceTable};
use ticktax_trace::{Output, TraceSettings, Tracer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sums = std::env::args().any(|word| word == "--sums");
    let output = if sums {
        Output::Sums { entries: 1 << 14 }
    } else {
        Output::Spans { per_cpu: 1 << 16 }
    };
    let proc = Proc::default();
    let online = proc.online().unwrap_or_default();
    let begin = Instant::now();
    let mut tracer = Tracer::load(
        &TraceSettings {
            output,
            ..TraceSettings::default()
        },
        proc.room_for_cpus(),
    )?;
    println!("loading: {:?}", begin.elapsed());
    println!("limitations: {:#?}", tracer.limitations());
    let begin = Instant::now();
    println!("late: {}", tracer.start(&online, &online));
    println!("starting: {:?}", begin.elapsed());
    let mut sources = SourceTable::default();
    let mut totals: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut balance: BTreeMap<u32, i64> = BTreeMap::new();
    let mut sink = |sources: &SourceTable, row: &ticktax_model::recording::Row| {
        let total = totals
            .entry(sources.get(row.source()).to_string())
            .or_default();
        total.0 += 1;
        total.1 += row.span().self_time.0;
        *balance.entry(row.cpu().0).or_default() += row.span().self_time.0;
    };
    for _ in 0..160 {
        std::thread::sleep(Duration::from_millis(50));
        tracer.drain(Nanos(2), &mut sources, &mut sink);
    }
    let begin = Instant::now();
    let closing = tracer.close(&online, Nanos(3), &mut sources, &mut sink);
    println!("closing: {:?}", begin.elapsed());
    for (name, (count, time)) in &totals {
        println!("{:>12} {count:>8} {name}", Nanos(*time).to_string());
    }
    for books in &closing.books {
        println!(
            "cpu {}: elapsed {} sum {}",
            books.cpu,
            books.elapsed().0,
            balance[&books.cpu.0]
        );
    }
    println!(
        "{:?} events {} mismatched {}",
        closing.lost, closing.events, closing.mismatched
    );
    Ok(())
}
