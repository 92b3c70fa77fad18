//! `ticktax mem`: measures the latency of caches and memory, and predicts walks over objects.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::ExitCode;

use ticktax_mem::btf::{Btf, layout};
use ticktax_mem::{Plan, Walk, caches_of, measure, objects};
use ticktax_model::Cpu;
use ticktax_model::mem::{CheckBasis, MemLatency, WalkCheck};
use ticktax_store::text::read_document;

use crate::arguments::{LatencyArguments, MemArguments, MemTask, ObjectsArguments, WalkArguments};
use crate::failure::{FAILED_CONTROL, Failure};
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &MemArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &typed.task {
        None => latency(&typed.latency, terminal),
        Some(MemTask::Latency(typed)) => latency(typed, terminal),
        Some(MemTask::Walk(typed)) => walk(typed, terminal),
        Some(MemTask::Objects(typed)) => kernel_objects(typed, terminal),
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

/// Returns the last CPU that this process may use. The first one handles more interrupts on most
/// machines.
fn default_cpu() -> Cpu {
    let last = ticktax_probes::allowed_cpus().iter().last();
    last.unwrap_or(Cpu(0))
}

fn measured(
    cpu: Option<Cpu>,
    max_bytes: Option<u64>,
    terminal: &Terminal,
) -> Result<MemLatency, Failure> {
    let cpu = cpu.unwrap_or_else(default_cpu);
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

fn walk(typed: &WalkArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let path = typed.layout.as_ref().unwrap_or(&typed.btf);
    let refused = |why: &dyn std::fmt::Display| {
        Failure::Walk(format!("cannot use the types in {}: {why}", path.display()))
    };
    let btf = read_types(typed, &refused)?;
    let structure = btf
        .structure(&typed.r#struct)
        .map_err(|error| refused(&error))?;
    let field = |path: &String| Ok((path.clone(), btf.field(&structure, path)?));
    let fields: Result<Vec<_>, ticktax_mem::WalkError> = typed.fields.iter().map(field).collect();
    let walk = Walk {
        fields: fields.map_err(|error| refused(&error))?,
        structure,
        items: typed.count,
        every: typed.every,
    };
    let latencies = match &typed.latencies {
        Some(path) => read_latencies(path)?,
        None => measured(None, None, terminal)?,
    };
    let mut predicted = walk.predict(&latencies);
    if typed.verify {
        let progress = terminal.progress(Extent::Unknown, "Checking the prediction");
        let observed = walk.observe(default_cpu(), latencies.line_bytes, latencies.prefetch);
        progress.done();
        let basis = match typed.latencies {
            Some(_) => CheckBasis::Table,
            None => CheckBasis::SameRun,
        };
        walk.check(&mut predicted, &observed?, basis);
    }
    let fits = predicted.check.as_ref().is_none_or(WalkCheck::fits);
    output::put(
        &predicted.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(if fits {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED_CONTROL)
    })
}

/// Layout of the running kernel's structures.
const RUNNING: &str = "/sys/kernel/btf/vmlinux";

fn kernel_objects(typed: &ObjectsArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let latencies = match &typed.latencies {
        Some(path) => read_latencies(path)?,
        None => measured(None, None, terminal)?,
    };
    let types = std::fs::read(RUNNING).ok();
    let types = types.and_then(|bytes| Btf::parse(&bytes).ok());
    let found = objects(Path::new("/"), types.as_ref(), &latencies, typed.budget);
    output::put(
        &found.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Largest layout file in bytes.
const MOST_LAYOUT: u64 = 4 << 20;

/// Reads the types from the layout file if one was given, and otherwise from the BTF file.
fn read_types(
    typed: &WalkArguments,
    refused: &dyn Fn(&dyn std::fmt::Display) -> Failure,
) -> Result<Btf, Failure> {
    let Some(path) = &typed.layout else {
        let bytes = std::fs::read(&typed.btf).map_err(|error| {
            let why = error.kind();
            refused(&format!("{why}; give another BTF file with --btf"))
        })?;
        return Btf::parse(&bytes).map_err(|error| refused(&error));
    };
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(MOST_LAYOUT + 1).read_to_string(&mut text))
        .map_err(|error| {
            let why = match error.kind() {
                ErrorKind::InvalidData => "it is not text".to_owned(),
                kind => kind.to_string(),
            };
            refused(&format!(
                "{why}; give a file with C declarations to --layout"
            ))
        })?;
    if read as u64 > MOST_LAYOUT {
        return Err(refused(
            &"it is longer than 4 MiB; keep only the structures that you need",
        ));
    }
    layout::parse(&text).map_err(|error| refused(&error))
}

/// Reads latencies that `ticktax mem --format json` printed.
fn read_latencies(path: &Path) -> Result<MemLatency, Failure> {
    let refused = |why: &str| {
        Failure::Walk(format!(
            "cannot use the latencies in {}: {why}; create the file with \
             `ticktax mem --format json`",
            path.display()
        ))
    };
    let text = read_document(path).map_err(|error| refused(&error.to_string()))?;
    let latencies: MemLatency =
        serde_json::from_slice(&text).map_err(|_| refused("it has no latencies"))?;
    if latencies.points.is_empty() {
        return Err(refused("it has no latencies"));
    }
    Ok(latencies)
}
