//! Simulates one load once. Prints the number of simulated events, the trace's hash and the peak
//! memory. To count instructions, run it under callgrind.
//!
//!     cargo figure engine -- hour 36

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example's result goes to the terminal"
)]

#[path = "../benches/engine/loads.rs"]
mod loads;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let secs = arguments.next().and_then(|secs| secs.parse().ok());
    let Some(setup) = secs.and_then(|secs| loads::load(&name, secs)) else {
        let names = loads::LOADS.map(|load| load.0).join(", ");
        eprintln!("usage: engine NAME SECONDS; NAME is one of {names}");
        return ExitCode::from(2);
    };
    let report = match ticktax_sim::run(&setup) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let sleeps: u64 = report.tasks.iter().map(|task| task.sleeps).sum();
    println!(
        "{name}: {:.0} simulated s; {} wake-ups, {} events, {} ticks; hash {:016x}",
        setup.length.as_secs_f64(),
        sleeps,
        report.events,
        report.ticks,
        report.hash
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("peak memory: {}", peak.trim());
    }
    ExitCode::SUCCESS
}
