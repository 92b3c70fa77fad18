//! Two threads compete for a CPU: one in the kernel, one in user mode. Their samples must show it.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_host::Proc;
use ticktax_model::recording::{Effect, Row, Stack};
use ticktax_model::{Cpu, Nanos, SourceTable};
use ticktax_trace::TraceSettings;

use crate::{MOMENT, load};

const READER: &str = "reads-zeros";
const SPINNER: &str = "spins";

/// Restricts the calling thread to these CPUs. Has no effect if the list is empty.
pub(crate) fn run_on(cpus: impl Iterator<Item = Cpu>) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu.index()).unwrap_or_default();
    }
    // The kernel rejects an empty set of CPUs, so the call then changes nothing.
    sched_setaffinity(Pid::from_raw(0), &set).unwrap_or_default();
}

/// Reads large blocks of zeros until `stop` is set, which takes place almost entirely in the kernel.
fn read_zeros(stop: &AtomicBool) {
    let Ok(mut zeros) = std::fs::File::open("/dev/zero") else {
        return;
    };
    let mut block = vec![0; 16 << 20];
    while !stop.load(Ordering::Relaxed) && zeros.read_exact(&mut block).is_ok() {}
}

#[inline(never)]
fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

pub(crate) fn the_code_that_keeps_a_thread_waiting_is_sampled() -> Result<(), Failed> {
    let mut tracer = load(&TraceSettings::default())?;
    let online = Proc::default().online().unwrap_or_default();
    let cpu = online.iter().last().ok_or("no CPU is online")?;
    let stop = Arc::new(AtomicBool::new(false));
    let start = |name: &str, work: fn(&AtomicBool)| {
        let stop = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            run_on(std::iter::once::<Cpu>(cpu));
            work(&stop);
        })
    };
    let threads = [start(READER, read_zeros)?, start(SPINNER, spin)?];
    tracer.start(&online, &online);
    std::thread::sleep(MOMENT);
    let mut stacks = Vec::new();
    let mut sink = |sources: &SourceTable, row: &Row| {
        if let Row::Edge(edge) = row
            && let Effect::Sampled(code) = &edge.effect
        {
            let name = sources.get(edge.span.source).name.to_string();
            stacks.push((name, Stack::from_folded(code)));
        }
    };
    let mut closing = tracer.close(&online, Nanos(2), &mut SourceTable::default(), &mut sink);
    let code = std::mem::take(&mut closing.code_files).named(|| ());
    let function = |file: &str, offset| {
        let mut files = code.files.iter();
        files.find(|known| known.name == file)?.function(offset)
    };
    for (_, stack) in &mut stacks {
        *stack = std::mem::take(stack).with_function(function);
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread failed")?;
    }
    let own_file = std::env::current_exe()?;
    let own_file = own_file.file_name().and_then(|name| name.to_str());
    let found = |thread: &str, function: &str| {
        stacks.iter().any(|(name, stack)| {
            let mut frames = stack.frames().iter();
            name == thread && frames.any(|frame| frame.name == function)
        })
    };
    if !found(READER, "read") || !found(READER, "vfs_read") {
        return Err(format!("no read of {READER}: {stacks:?}").into());
    }
    if !own_file.is_some_and(|file| found(SPINNER, file)) {
        return Err(format!("no {own_file:?} of {SPINNER}: {stacks:?}").into());
    }
    if !found(SPINNER, "root::sampled::spin") {
        return Err(format!("the function of {SPINNER} has no name: {stacks:?}, {code:?}").into());
    }
    if stacks
        .iter()
        .any(|(name, stack)| name == SPINNER && stack.frames().len() > 8)
    {
        return Err(format!("frames of the interrupt are left: {stacks:?}").into());
    }
    if closing.stacks_lost > stacks.len() as u64 / 10 {
        return Err(format!("{} of {} stacks lost", closing.stacks_lost, stacks.len()).into());
    }
    Ok(())
}
