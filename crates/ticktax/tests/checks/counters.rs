//! Compares a recording with the kernel's own counters.

use libtest_mimic::Failed;
use ticktax_model::kernel_words::TICK_FUNCTIONS;
use ticktax_model::machine::Counters;
use ticktax_model::recording::{CpuInterval, Header};
use ticktax_model::statement::Statement;
use ticktax_model::tick::{Basis, TickBill};
use ticktax_model::{Cpu, Kind, Nanos};

use super::{Recorded, Tolerance, check};

/// Upper bound on the time it takes to read the kernel's counts of interrupts and softirqs.
const READING: Nanos = Nanos::from_millis(2);

/// Returns the largest number of `starts` within any interval of this `length`.
fn densest(mut starts: Vec<Nanos>, length: Nanos) -> u64 {
    starts.sort_unstable();
    let until = |start: Nanos| starts.partition_point(|&other| other < start + length);
    let within = starts.iter().enumerate();
    let most = within.map(|(place, &start)| until(start) - place).max();
    most.unwrap_or(0) as u64
}

/// Returns how far apart, in total, the two readings of the interrupt counts are from the start and
/// the end of the accounts.
fn apart(header: &Header, books: &CpuInterval) -> Nanos {
    let read = |counters: &Counters| counters.interrupts_read.unwrap_or(counters.at);
    let [before, after] = [&header.before, &header.after].map(read);
    Nanos((books.begin - before).0.abs() + (after - books.end).0.abs())
}

/// Adds to `tolerance` the number of events that only the kernel's counters or only the accounts
/// may include, because the counters were not read exactly when the accounts started or ended. Even
/// a few milliseconds can contain hundreds of events: RCU softirqs after much memory has been
/// freed, or function calls between CPUs when a program with many threads exits.
fn in_between(starts: Vec<Nanos>, between: Nanos, tolerance: Tolerance) -> Tolerance {
    let most = 2 * densest(starts, between);
    Tolerance {
        events: tolerance.events.max(most as f64),
        ..tolerance
    }
}

fn starts(recorded: &Recorded, cpu: Cpu, kind: Kind, names: &[&str]) -> Vec<Nanos> {
    let spans = recorded.spans.iter().filter(|(span, source)| {
        span.cpu == cpu
            && source.kind == kind
            && source.detail.is_empty()
            && names.contains(&&*source.name)
    });
    spans.map(|(span, _)| span.start).collect()
}

pub(crate) fn spans_match_counts(recorded: &Recorded, tolerance: Tolerance) -> Result<(), Failed> {
    let header = &recorded.header;
    for books in &header.cpus {
        let cpu = books.cpu;
        let between = apart(header, books) + READING + READING;
        for (row, names) in [
            ("LOC", &["local_timer"][..]),
            ("CAL", &["call_function", "call_function_single"]),
            ("RES", &["reschedule"]),
            ("IWI", &["irq_work"]),
        ] {
            let truly = header.after.interrupts_since(&header.before, row, cpu);
            let Some(truly) = truly else { continue };
            let found = starts(recorded, cpu, Kind::Irq, names);
            let count = found.len() as u64;
            let tolerance = in_between(found, between, tolerance);
            tolerance.count(&format!("{row} on CPU {cpu}"), count, truly)?;
        }
        for vector in ["TIMER", "SCHED", "RCU", "NET_RX", "BLOCK"] {
            let reading = |counters: &Counters| counters.softirqs.get(vector)?.get(&cpu.0).copied();
            let readings = reading(&header.before).zip(reading(&header.after));
            let Some((before, after)) = readings else {
                continue;
            };
            let found = starts(recorded, cpu, Kind::Softirq, &[vector]);
            let count = found.len() as u64;
            let tolerance = in_between(found, between, tolerance);
            tolerance.count(&format!("{vector} on CPU {cpu}"), count, after - before)?;
        }
    }
    Ok(())
}

pub(crate) fn bill(statement: &Statement) -> Result<&TickBill, Failed> {
    let bill = statement.tick.as_ref();
    bill.ok_or_else(|| "there is no bill".into())
}

/// Returns the number of local timer interrupts on `cpu` that did not run a tick.
fn without_a_tick(recorded: &Recorded, cpu: Cpu) -> u64 {
    let (mut has_ticked, mut count) = (false, 0);
    let mine = recorded.spans.iter().filter(|(span, _)| span.cpu == cpu);
    for (_, source) in
        mine.filter(|(_, source)| source.kind == Kind::Irq && *source.name == *"local_timer")
    {
        // A function that runs within an interrupt ends before the interrupt does, so the
        // function's row comes first.
        if source.detail.is_empty() {
            count += u64::from(!std::mem::take(&mut has_ticked));
        } else {
            has_ticked |= TICK_FUNCTIONS.contains(&&*source.detail);
        }
    }
    count
}

/// Checks that LOC in `/proc/interrupts` rose by the number of ticks plus the number of interrupts
/// from other timers. `tolerance` allows for interrupts that arrive after a reading of the counters
/// but outside the accounts, and for the ticks on a CPU that is busy at that time.
pub(crate) fn ticks_match_counts(
    statement: &Statement,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let bill = bill(statement)?;
    check(bill.basis == Basis::Spans, || format!("{bill:?}"))?;
    for cpu in &bill.cpus {
        let interrupts = cpu.interrupts.ok_or("no LOC in /proc/interrupts")?;
        let ticks = cpu.all.count + without_a_tick(recorded, cpu.cpu);
        let mut books = recorded.header.cpus.iter();
        let books = books
            .find(|books| books.cpu == cpu.cpu)
            .ok_or("no accounts")?;
        let between = apart(&recorded.header, books);
        let due = between.as_secs_f64() * bill.hz_configured.map_or(0.0, f64::from);
        let tolerance = Tolerance {
            events: tolerance.events + due.ceil(),
            ..tolerance
        };
        let timers = starts(recorded, cpu.cpu, Kind::Irq, &["local_timer"]);
        let tolerance = in_between(timers, between + READING + READING, tolerance);
        tolerance.count(&format!("ticks on CPU {}", cpu.cpu), ticks, interrupts)?;
    }
    Ok(())
}

pub(crate) fn tick_costs_add_up(statement: &Statement) -> Result<(), Failed> {
    let cost = bill(statement)?.cost.as_ref().ok_or("no cost")?;
    let within: i64 = cost.parts.iter().map(|part| part.time.0).sum();
    check(within == cost.time.0, || format!("{cost:?}"))
}
