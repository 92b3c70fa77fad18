//! A thread spends known shares of its time in four functions. The samples of a profile must show
//! the same shares.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Failed;
use ticktax_host::Proc;
use ticktax_inject::shares::{FUNCTIONS, LONGEST, run_functions};
use ticktax_model::recording::{Effect, Row, Stack};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_trace::{ProfileClock, TraceSettings};

use crate::{MOMENT, load};

const WORKER: &str = "four-functions";

/// Number of samples per second.
const HZ: u32 = 1_999;

/// Largest difference between the shares in percentage points.
const MARGIN: f64 = 2.0;

/// Minimum number of samples for a verdict. With 2,000 independent samples, the standard deviation
/// of a share is at most 1.1 percentage points. Samples at a fixed rate vary less.
const MIN_SAMPLES: usize = 2_000;

/// Returns the position in [`FUNCTIONS`] of the function that was sampled, if it is one of them.
/// The innermost frame is the name of a function, or this file with an offset in it.
fn function_of(stack: &Stack, starts: &[u64; 4]) -> Option<usize> {
    let name = &*stack.frames().last()?.name;
    let named = FUNCTIONS.iter().position(|(function, ..)| {
        let path = name.split('+').next().unwrap_or(name);
        path.rsplit("::").next() == Some(function)
    });
    named.or_else(|| {
        let (_, offset) = name.rsplit_once("+0x")?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let before = starts.iter().enumerate();
        let before = before.filter(|(_, start)| (**start..**start + LONGEST).contains(&offset));
        before
            .max_by_key(|(_, start)| **start)
            .map(|(place, _)| place)
    })
}

/// Returns the offsets of the functions in this program's file.
fn starts() -> Result<[u64; 4], Failed> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset_of = |address: u64| {
        maps.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (begin, end) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let hex = |number| u64::from_str_radix(number, 16).ok();
            let (begin, end, offset) = (hex(begin)?, hex(end)?, hex(offset)?);
            (begin..end)
                .contains(&address)
                .then(|| address - begin + offset)
        })
    };
    let mut starts = [0; 4];
    for (start, (name, work, _)) in starts.iter_mut().zip(FUNCTIONS) {
        *start = offset_of(work as usize as u64).ok_or_else(|| format!("{name} is not mapped"))?;
    }
    Ok(starts)
}

pub(crate) fn a_profile_shows_the_shares_of_functions() -> Result<(), Failed> {
    let online = Proc::default().online().unwrap_or_default();
    let clock = |cpus: &CpuList| ProfileClock {
        hz: HZ,
        cpus: cpus.clone(),
    };
    let mut tracer = load(&TraceSettings {
        profile: Some(clock(&online)),
        ..TraceSettings::default()
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::Builder::new().name(WORKER.to_owned());
    tracer.start(&online, &online);
    let worker = thread.spawn({
        let stop = Arc::clone(&stop);
        move || run_functions(&stop)
    })?;
    let mut sources = SourceTable::default();
    let mut stacks: Vec<Stack> = Vec::new();
    let mut count = |sources: &SourceTable, row: &Row| {
        if let Row::Edge(edge) = row
            && let Effect::Profiled(code) = &edge.effect
            && &*sources.get(edge.span.source).name == WORKER
        {
            stacks.push(Stack::from_folded(code));
        }
    };
    // The busier the machine, the longer it takes to get the samples.
    for _ in 0..10 {
        std::thread::sleep(MOMENT);
        tracer.drain(Nanos(1), &mut sources, &mut count);
    }
    let closing = tracer.close(&online, Nanos(2), &mut sources, &mut count);
    stop.store(true, Ordering::Relaxed);
    let times = worker.join().map_err(|_| "the worker failed")?;
    if stacks.len() < MIN_SAMPLES {
        return Err(format!("only {} samples", stacks.len()).into());
    }
    let starts = starts()?;
    let mut counts = [0_u32; 4];
    for place in stacks
        .iter()
        .filter_map(|stack| function_of(stack, &starts))
    {
        counts[place] += 1;
    }
    let all: Nanos = times.iter().copied().sum();
    for ((name, ..), (time, count)) in FUNCTIONS.iter().zip(times.iter().zip(counts)) {
        let truth = 100.0 * time.share_of(all);
        let share = 100.0 * f64::from(count) / stacks.len() as f64;
        if (share - truth).abs() > MARGIN {
            let shares = format!("{share:.2} % of the samples for {truth:.2} % of the time");
            let all = stacks.len();
            return Err(format!("{name}: {shares}, of {counts:?} in {all} samples").into());
        }
    }
    if closing.stacks_lost > 0 {
        return Err(format!("{} stacks lost", closing.stacks_lost).into());
    }
    Ok(())
}
