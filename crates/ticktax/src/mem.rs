//! `ticktax mem`: measures the latency of caches and memory.

use std::path::Path;
use std::process::ExitCode;

use ticktax_mem::{Plan, caches_of, measure};
use ticktax_model::Cpu;
use ticktax_model::mem::MemLatency;

use crate::arguments::{LatencyArguments, MemArguments, MemTask};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &MemArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &typed.task {
        None => latency(&typed.latency, terminal),
        Some(MemTask::Latency(typed)) => latency(typed, terminal),
    }
}

fn latency(typed: &LatencyArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let cpu = typed.cpu.map(Cpu);
    let measured = measured(cpu, typed.max.map(|size| size.0), terminal)?;
    output::put(
        &measured.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Measures the latencies of a CPU, by default the last one that this process may use. The first
/// one handles more interrupts on most machines.
fn measured(
    cpu: Option<Cpu>,
    max_bytes: Option<u64>,
    terminal: &Terminal,
) -> Result<MemLatency, Failure> {
    let last = || ticktax_probes::allowed_cpus().iter().last();
    let cpu = cpu.or_else(last).unwrap_or(Cpu(0));
    let plan = Plan {
        cpu,
        caches: caches_of(Path::new("/"), cpu),
        max_bytes,
    };
    let progress = terminal.progress(Extent::Unknown, "Measuring");
    let measured = measure(&plan);
    progress.done();
    Ok(measured?)
}
