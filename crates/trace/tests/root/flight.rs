//! Tests the flight recorder's ring, its two tables of sums, and its triggers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::recording::{Effect, Row};
use ticktax_model::victim::{OffCpu, OffCpuReason};
use ticktax_model::{Cpu, Kind, Nanos, SourceTable};
use ticktax_trace::{Delay, Frozen, Noticed, Output, Rule, TraceSettings, Tracer, Triggers, Whose};

use super::{load, now};

/// System calls that create processes.
const FORKS: [&str; 3] = ["clone", "clone3", "vfork"];

/// Time during which a test injects blocks, their period, and their length.
const INJECTED: Nanos = Nanos::from_millis(500);
const BLOCK_PERIOD: Nanos = Nanos::from_millis(100);
const BLOCK: Nanos = Nanos::from_millis(20);

/// Memory limit of a captured window, in bytes.
const ROOM: usize = 32 << 20;

/// Starts a flight recorder that has `per_cpu` records in each CPU's ring.
fn recorder(per_cpu: u32) -> Result<Tracer, Failed> {
    let mut tracer = load(&TraceSettings {
        output: Output::Flight {
            per_cpu,
            entries: 1 << 12,
        },
        ..TraceSettings::default()
    })?;
    let online = Proc::default().online().unwrap_or_default();
    tracer.start_flight(&online, &online);
    Ok(tracer)
}

/// Pairs of threads that pass a token back and forth, so that they switch constantly. They stop
/// when this is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Busy {
    fn pairs(pairs: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let pair = |_| {
            let (to, from) = std::sync::mpsc::sync_channel::<()>(0);
            let stop = Arc::clone(&stop);
            let sender =
                thread::spawn(
                    move || {
                        while !stop.load(Ordering::Relaxed) && to.send(()).is_ok() {}
                    },
                );
            let receiver = thread::spawn(move || while from.recv().is_ok() {});
            [sender, receiver]
        };
        let threads = (0..pairs).flat_map(pair).collect();
        Self { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_default();
        }
    }
}

/// Checks that the rows' self times add up to each CPU's accounting interval, and that no row is
/// torn.
fn balances(frozen: &Frozen, sources: &SourceTable) -> Result<(), Failed> {
    let mut own: BTreeMap<Cpu, i64> = BTreeMap::new();
    for row in &frozen.rows {
        let span = row.span();
        if sources.get(row.source()).kind != Kind::Wait {
            *own.entry(row.cpu()).or_default() += span.self_time.0;
        }
        let books = frozen.books.iter().find(|books| books.cpu == row.cpu());
        let books = books.ok_or_else(|| format!("CPU {} has rows and no books", row.cpu()))?;
        let is_intact = span.self_time.0 >= 0 && span.self_time <= span.dur;
        let is_edge = matches!(row, Row::Edge(_));
        if span.start < books.begin || span.end() > books.end || !(is_intact || is_edge) {
            return Err(format!("a torn row: {row:?} in {books:?}").into());
        }
    }
    for books in &frozen.books {
        let lost = frozen.lost.iter().filter(|loss| loss.cpu == books.cpu);
        let lost: i64 = lost.map(|loss| loss.self_time.0).sum();
        let accounted = own.get(&books.cpu).copied().unwrap_or(0) + lost;
        if accounted != books.elapsed().0 {
            return Err(
                format!("CPU {}: {accounted} of {} ns", books.cpu, books.elapsed().0).into(),
            );
        }
    }
    Ok(())
}

pub(super) fn a_ring_that_wraps_yields_only_complete_rows() -> Result<(), Failed> {
    let mut tracer = recorder(1 << 10)?;
    let busy = Busy::pairs(2);
    let mut windows = 0;
    for _ in 0..40 {
        thread::sleep(Duration::from_millis(50));
        // Ask for a window that starts much earlier than the ring can reach back.
        let capture = tracer.capture(now() - Nanos::from_secs(10), ROOM);
        let mut sources = SourceTable::default();
        let frozen = tracer.freeze(capture, now(), None, &mut sources);
        if frozen.books.is_empty() {
            return Err("no CPU has books".into());
        }
        balances(&frozen, &sources)?;
        windows += usize::from(frozen.rows.iter().count() > 500);
    }
    drop(busy);
    if tracer.ring_reach().is_none() {
        return Err("no ring came round".into());
    }
    if windows == 0 {
        return Err("no window holds what a ring has room for".into());
    }
    Ok(())
}

pub(super) fn a_window_at_a_high_rate_loses_nothing() -> Result<(), Failed> {
    let mut tracer = recorder(1 << 20)?;
    let busy = Busy::pairs(2);
    // A recorder also uses this nice value, because its ring could wrap while it waits for a CPU.
    let nice = Tracer::own_nice();
    Tracer::set_own_nice(-20);
    thread::sleep(Duration::from_millis(300));
    let (begin, end) = (
        now() - Nanos::from_millis(200),
        now() + Nanos::from_millis(300),
    );
    let mut capture = tracer.capture(begin, ROOM);
    while now() < end {
        thread::sleep(Duration::from_millis(20));
        tracer.fill_capture(&mut capture);
    }
    drop(busy);
    Tracer::set_own_nice(nice);
    let mut sources = SourceTable::default();
    let frozen = tracer.freeze(capture, end, None, &mut sources);
    balances(&frozen, &sources)?;
    let lost: u64 = frozen.lost.iter().map(|loss| loss.events).sum();
    if lost > 0 {
        return Err(format!("{lost} records were lost").into());
    }
    // Every hit is counted, but not every hit creates a record.
    let (rows, bytes) = (frozen.rows.iter().count() as u64, frozen.rows.bytes());
    if bytes as u64 > rows * 16 + (2 << 20) || frozen.hits == 0 || frozen.hits > tracer.events() {
        return Err(format!("{rows} rows take {bytes} bytes; {} hits", frozen.hits).into());
    }
    let is_complete =
        |books: &&ticktax_model::recording::CpuInterval| (books.begin, books.end) == (begin, end);
    // If an interrupt arrived while a stretch was being emitted, a border may be off by one
    // stretch.
    let shifted = frozen.books.iter().filter(|books| !is_complete(books));
    for books in shifted {
        let moved = (books.begin - begin).max(end - books.end);
        if moved > Nanos::from_millis(100) {
            return Err(format!("{books:?} of {begin} to {end}").into());
        }
    }
    Ok(())
}

pub(super) fn alternating_tables_of_sums_lose_nothing() -> Result<(), Failed> {
    let mut tracer = recorder(1 << 10)?;
    let busy = Busy::pairs(2);
    let mut own: i64 = 0;
    let begin = now();
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(100));
        tracer.switch_tables(now());
        thread::sleep(Duration::from_millis(20));
        let window = tracer.take_sums(&mut SourceTable::default(), &mut |sources, row| {
            if sources.get(row.source()).kind != Kind::Wait {
                own += row.span().self_time.0;
            }
        });
        if window.is_none()
            || tracer
                .take_sums(&mut SourceTable::default(), &mut |_, _| {})
                .is_some()
        {
            return Err("a table must be returned exactly once".into());
        }
    }
    drop(busy);
    let online = Proc::default().online().unwrap_or_default().len();
    let elapsed = (now() - begin).0 * i64::try_from(online)?;
    // Intervals that are open at either end are not included in the sums, and an idle interval may
    // be long.
    let share = own as f64 / elapsed as f64;
    if !(0.4..1.5).contains(&share) {
        return Err(format!("sums of {own} ns in {elapsed} ns").into());
    }
    Ok(())
}

/// Waits until at least one trigger arrives, and returns the triggers.
fn noticed(tracer: &mut Tracer, triggers: &mut Triggers) -> Result<Vec<Noticed>, Failed> {
    let (_writer, reader) = std::os::unix::net::UnixStream::pair()?;
    let begin = now();
    let mut all = Vec::new();
    // On a busy machine, a thread with the lowest priority can wait this long.
    while all.is_empty() && now() - begin < Nanos::from_secs(60) {
        triggers.wait(reader.as_fd(), Duration::from_secs(1));
        while let Some(trigger) = tracer.next_trigger(triggers) {
            all.push(trigger);
        }
    }
    Ok(all)
}

/// A process that runs a busy loop on CPU 0. It ends when this is dropped.
struct Spinning(std::process::Child);

impl Spinning {
    fn start(nice: &str) -> Result<Self, Failed> {
        let loops = ["-n", nice, "sh", "-c", "while :; do :; done"];
        let child = std::process::Command::new("nice").args(loops).spawn()?;
        let spinning = Self(child);
        let mut first = CpuSet::new();
        first.set(0)?;
        sched_setaffinity(Pid::from_raw(spinning.0.id().cast_signed()), &first)?;
        Ok(spinning)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        let _ = self.0.wait();
    }
}

pub(super) fn a_wait_beyond_the_limit_is_noticed() -> Result<(), Failed> {
    let mut tracer = recorder(1 << 16)?;
    let started = now();
    let mut triggers = tracer.triggers()?;
    let (held, holds) = (Spinning::start("19")?, Spinning::start("0")?);
    let over = Nanos::from_millis(20);
    let rule = |delay, pid| Rule {
        delay,
        whose: Whose::Process(pid),
        over,
        counted: false,
        paced: None,
    };
    // The process has no quota, so the first rule cannot fire. The recorder's own process never
    // triggers, so the second rule cannot fire either. That leaves only the third rule.
    let (pid, own) = (held.0.id(), std::process::id());
    tracer.set_rules(&[
        rule(Delay::Throttled, pid),
        rule(Delay::Waiting, own),
        rule(Delay::Waiting, pid),
    ])?;
    let all = noticed(&mut tracer, &mut triggers)?;
    let Some(last) = all.last() else {
        return Err("nothing was noticed".into());
    };
    let wrong = |trigger: &&Noticed| {
        trigger.rule != 2 || trigger.pid.cast_unsigned() != pid || trigger.lasted < over
    };
    if let Some(wrong) = all.iter().find(wrong) {
        return Err(format!("{wrong:?}").into());
    }
    // On average, a CPU is sampled every 20 ms.
    let begin = (last.time - last.lasted - Nanos::from_millis(200)).max(started);
    let capture = tracer.capture(begin, ROOM);
    let (end, mut sources) = (last.time + Nanos(1), SourceTable::default());
    let frozen = tracer.freeze(capture, end, Some(last.pid), &mut sources);
    balances(&frozen, &sources)?;
    // The rows must contain the wait with its exact length. The name is not compared, because the
    // thread may have had a different name at the time.
    let is_its = |row: &Row| {
        let source = sources.get(row.source());
        let thread = source.thread.as_ref();
        let same_thread =
            thread.is_some_and(|thread| (thread.tid, thread.pid) == (last.tid, last.pid));
        same_thread && source.kind == Kind::Wait
    };
    let waits: Vec<Row> = frozen.rows.iter().filter(is_its).collect();
    if !waits.iter().any(|row| row.span().dur == last.lasted) {
        return Err(format!("no wait of {} among {waits:?}", last.lasted).into());
    }
    // Samples are taken at the interrupts of x86's local timer.
    let is_sampled = is_sampled(&frozen, &sources, holds.0.id());
    if cfg!(target_arch = "x86_64") && !is_sampled {
        return Err("no sample of the process that it waited behind".into());
    }
    Ok(())
}

/// Returns whether the rows contain a sample that shows the code of process `pid`.
fn is_sampled(frozen: &Frozen, sources: &SourceTable, pid: u32) -> bool {
    frozen.rows.iter().any(|row| {
        let thread = sources.get(row.source()).thread.as_ref();
        let is_its = thread.is_some_and(|thread| thread.pid.cast_unsigned() == pid);
        is_its && matches!(row, Row::Edge(edge) if is_known_sample(&edge.effect))
    })
}

fn is_known_sample(effect: &Effect) -> bool {
    matches!(effect, Effect::Sampled(code) if !code.is_empty())
}

/// Threads that wait uninterruptibly for a child process (`CLONE_VFORK`) must have the place where
/// they waited, both in the list of places and in the rows of their waits.
pub(super) fn a_block_has_its_place() -> Result<(), Failed> {
    let mut tracer = recorder(1 << 16)?;
    let begin = now();
    let schedule = Schedule::every(BLOCK_PERIOD, BLOCK);
    ticktax_inject::run(
        &Plan::new(Disturbance::Block, Cpu(0))
            .schedule(schedule)
            .duration(INJECTED),
    )?;
    let capture = tracer.capture(begin, ROOM);
    let own = std::process::id().cast_signed();
    let mut sources = SourceTable::default();
    let frozen = tracer.freeze(capture, now(), Some(own), &mut sources);
    let is_fork = |call: Option<&str>| call.is_some_and(|call| FORKS.contains(&call));
    let mut places = frozen.places.values();
    if !places.any(|place| is_fork(place.syscall.as_deref())) {
        return Err(format!("no place of a block: {:?}", frozen.places).into());
    }
    let mut details = frozen
        .rows
        .iter()
        .map(|row| sources.get(row.source()).detail.clone());
    let is_block = |detail: &str| {
        let off = OffCpu::parse(detail);
        off.is_some_and(|off| off.reason == OffCpuReason::Lock && is_fork(off.syscall))
    };
    if !details.any(|detail| is_block(&detail)) {
        return Err("no wait has the place of a block".into());
    }
    Ok(())
}
