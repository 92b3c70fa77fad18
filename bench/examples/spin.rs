//! Spins on every CPU for two seconds and prints how much time each CPU lost.
//!
//! `cargo run --release -p ticktax-bench --example spin -- [idle|other|fifo]`
#![allow(clippy::print_stdout, reason = "an example's output is its purpose")]

use std::collections::BTreeMap;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_probes::clock::{Clock, now};
use ticktax_probes::spin::{SpinProbe, SpinSettings};
use ticktax_probes::{ProbeError, SchedulingPolicy, online_cpus};

fn main() -> Result<(), ProbeError> {
    let policy = match std::env::args().nth(1).as_deref() {
        Some("fifo") => SchedulingPolicy::Fifo(50),
        Some("other") => SchedulingPolicy::Other,
        _ => SchedulingPolicy::Idle,
    };
    let clock = Clock::calibrate();
    println!("{:?}", clock.check());
    let mut alignment = clock.alignment();
    let settings = SpinSettings {
        policy,
        ..SpinSettings::default()
    };
    let mut probe = SpinProbe::start(&clock, &online_cpus()?, settings)?;
    let mut lost: BTreeMap<_, (u64, Nanos)> = BTreeMap::new();
    let mut count = |cpu, ticks| {
        let (long, time) = lost.entry(cpu).or_default();
        let length = clock.to_nanos(ticks);
        *long += u64::from(length >= Nanos::from_micros(1));
        *time += length;
    };
    let end = now() + Nanos::from_secs(2);
    while now() < end {
        std::thread::sleep(Duration::from_millis(50));
        alignment.push(clock.anchor());
        probe.drain(|cpu, gap| count(cpu, gap.end_counter - gap.start_counter));
    }
    let reports = probe.stop(|cpu, gap| count(cpu, gap.end_counter - gap.start_counter));
    alignment.push(clock.anchor());
    println!(
        "alignment: {} anchors, within {}",
        alignment.anchors().len(),
        alignment.uncertainty()
    );
    for report in reports {
        let elapsed = clock.to_nanos(report.ended_counter - report.started_counter);
        let (long, time) = lost.get(&report.cpu).copied().unwrap_or_default();
        let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
        let own = elapsed - time - report.time_dropped - report.time_recording;
        println!(
            "CPU {} {}: loop {:.1} ns (mean {:.1}), threshold {}, {:.0} gaps/s ({:.0}/s of 1 µs or \
             more), lost {:.2} %, recording {:.4} %, dropped {}",
            report.cpu,
            report.policy,
            report.loop_median_ns,
            own.0 as f64 / report.loops.max(1) as f64,
            report.threshold,
            per_second(report.gaps),
            per_second(long),
            100.0 * time.share_of(elapsed),
            100.0 * report.time_recording.share_of(elapsed),
            report.gaps_dropped,
        );
        if let Some(error) = report.error {
            println!("CPU {}: {error}", report.cpu);
        }
    }
    Ok(())
}
